"""The table of stages, and how its rows are called from Python.

brim's C library has one table of stages; `_stages` makes a method or function of each row. This is
their common part: a call's arguments as C takes them, signatures and texts.

Arguments are those of the text: arguments that need no key there are positional here, a list is
several positional values or a list for its key, and None leaves an argument out. This file knows
only names and kinds: C checks values, and raises PipelineError.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from . import _core

table: dict[str, _core.StageInfo] = {stage["name"]: stage for stage in _core.stages()}

_NOUNS = {
    "integer": "int",
    "real": "float",
    "size": "int | str",
    "yesno": "bool",
    "word": "str",
    "path": "str | PathLike[str]",
    "pipeline": "Pipeline | str",
    "weighted": "tuple[float, Pipeline | str]",
}


def python_name(name: str) -> str:
    """A name of the table as Python can say it: `from` is a keyword, so it is `from_`."""
    return name + "_" if keyword.iskeyword(name) else name


def binding_argument(stage: _core.StageInfo) -> str | None:
    """The argument that takes an object of the program, if there is one."""
    for argument in stage["arguments"]:
        if argument["type"] == "binding":
            return argument["name"]
    return None


def begins(stage: _core.StageInfo) -> bool:
    """Whether a pipeline begins with it: a source, or what is made of other pipelines."""
    return stage["room"] == "source" or any(
        argument["type"] in ("pipeline", "weighted") for argument in stage["arguments"]
    )


# ------------------------------------------------------------- what was given to a call


def _several(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _unknown(stage: _core.StageInfo, name: str) -> TypeError:
    valid = [python_name(argument["name"]) for argument in stage["arguments"]]
    takes = f"it takes {_several(valid)}" if valid else "it takes none"
    near = difflib.get_close_matches(name, valid, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{stage['name']}() has no argument {name!r}: {takes}{meant}")


def _gather(
    stage: _core.StageInfo, args: Sequence[object], keywords: Mapping[str, object]
) -> dict[str, object]:
    """Values by the table's names; of a list that was given by position, a tuple."""
    name = stage["name"]
    given: dict[str, object] = {}
    left = list(args)
    positional = [argument for argument in stage["arguments"] if argument["positional"]]
    for argument in positional:
        if not left:
            break
        if argument["list"]:
            given[argument["name"]] = tuple(left)
            left = []
        else:
            given[argument["name"]] = left.pop(0)
    if left:
        most = len(positional)
        raise TypeError(
            f"{name}() takes {most} argument{'' if most == 1 else 's'} by position, not "
            f"{len(args)}; the others by keyword"
        )
    names = {python_name(argument["name"]): argument["name"] for argument in stage["arguments"]}
    for key, value in keywords.items():
        if key not in names:
            raise _unknown(stage, key)
        if names[key] in given:
            raise TypeError(f"{name}() got {key} twice, by position and by keyword")
        given[names[key]] = value
    given = {key: value for key, value in given.items() if value is not None}
    for argument in stage["arguments"]:
        if argument["required"] and argument["name"] not in given:
            raise TypeError(f"{name}() needs {python_name(argument['name'])}: {argument['help']}")
    return given


def _simple(value: object) -> object:
    """numpy's arrays and scalars as lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def _flat(value: object) -> Iterator[object]:
    """The values of a list, which may hold lists: resize(224, 224) and resize((224, 224))."""
    value = _simple(value)
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _plain(stage: _core.StageInfo, argument: _core.ArgumentInfo, value: object) -> object:
    """A value as C takes it: str, int, float or bool; pipelines stay what they are."""
    from ._pipeline import Pipeline

    kind = argument["type"]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value) if kind in ("real", "weighted") else value  # 1.0 is 1, and printed so
    if kind in ("pipeline", "weighted"):
        if isinstance(value, (Pipeline, str)):
            return value if isinstance(value, Pipeline) else Pipeline(value)
        if kind == "weighted" and isinstance(value, (int, float)):
            return value
    elif isinstance(value, (str, bool, float)):
        return value
    elif isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    elif isinstance(value, (os.PathLike, bytes)):
        return os.fsdecode(value)
    raise TypeError(
        f"{stage['name']}(): {python_name(argument['name'])} is {_noun(argument)}, not "
        f"{type(value).__name__}"
    )


def _pairs(stage: _core.StageInfo, value: object) -> Iterator[object]:
    """Weight, pipeline, weight, ... of (weight, pipeline) pairs."""
    pairs = value if isinstance(value, (list, tuple)) else (value,)
    if len(pairs) == 1 and isinstance(pairs[0], list):  # mix([(0.7, a), (0.3, b)])
        pairs = pairs[0]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"{stage['name']}() takes (weight, pipeline) pairs, such as "
                f"{stage['name']}((0.7, a), (0.3, b)), not {pair!r}"
            )
        yield from map(_simple, pair)


def arguments(
    stage: _core.StageInfo, args: Sequence[object], keywords: Mapping[str, object]
) -> list[tuple[str | None, object]]:
    """What a call was given as (key, value), a list's key once for each of its values."""
    given = _gather(stage, args, keywords)
    pairs: list[tuple[str | None, object]] = []
    for argument in stage["arguments"]:
        name = argument["name"]
        if name not in given:
            continue
        if argument["type"] == "weighted":
            values = _pairs(stage, given[name])
        else:
            values = _flat(given[name]) if argument["list"] else iter([_simple(given[name])])
        pairs += [(name, _plain(stage, argument, one)) for one in values]
    return pairs


# ------------------------------------------------------------------ signatures and texts


def _noun(argument: _core.ArgumentInfo) -> str:
    """The type of one value, as Python spells it."""
    if argument["type"] == "choice":
        choices = argument["choices"] or []
        words: list[object] = [int(word) if word.isdigit() else word for word in choices]
        if "yes" in choices and "no" in choices:
            words = [word for word in words if word not in ("yes", "no")] + [True, False]
        return f"Literal[{', '.join(map(repr, words))}]"
    return _NOUNS[argument["type"]]


def annotation(argument: _core.ArgumentInfo) -> str:
    """The type of an argument, as Python spells it."""
    noun = _noun(argument)
    if argument["list"]:
        noun = f"{noun} | Sequence[{noun}]"
    if not argument["required"] and argument["default"] is None:
        noun += " | None"
    return noun


def default(argument: _core.ArgumentInfo) -> object:
    """The default as a value; None where there is none."""
    text = argument["default"]
    if text is None:
        return None
    kinds: dict[str, Callable[[str], object]] = {
        "integer": int,
        "real": float,
        "size": lambda word: int(word) if word.isdigit() else word,
        "yesno": lambda word: word == "yes",
        "choice": lambda word: int(word) if word.isdigit() else word,
    }
    kind = kinds.get(argument["type"], str)
    if argument["list"] and "," in text:
        return tuple(kind(word) for word in text.split(","))
    return kind(text)


def signature(stage: _core.StageInfo, *, method: bool) -> inspect.Signature:
    kinds = inspect.Parameter
    parameters = [kinds("self", kinds.POSITIONAL_ONLY)] if method else []
    several = False
    for argument in sorted(stage["arguments"], key=lambda argument: not argument["positional"]):
        name = python_name(argument["name"])
        if argument["positional"] and argument["list"]:
            noun = _noun(argument)
            several = True
            parameters.append(
                kinds(name, kinds.VAR_POSITIONAL, annotation=f"{noun} | Sequence[{noun}]")
            )
            continue
        by_position = argument["positional"] and not several
        parameters.append(
            kinds(
                name,
                kinds.POSITIONAL_OR_KEYWORD if by_position else kinds.KEYWORD_ONLY,
                default=kinds.empty if argument["required"] else default(argument),
                annotation=annotation(argument),
            )
        )
    parameters.sort(key=lambda parameter: parameter.kind)
    return inspect.Signature(parameters, return_annotation="Pipeline")


def _range(argument: _core.ArgumentInfo) -> str:
    least, most = argument["least"], argument["most"]
    if least == 0 and most == 0:
        return ""
    ends = [f"{end:.12g}" if argument["type"] == "real" else str(int(end)) for end in (least, most)]
    return f" from {ends[0]}" if most >= 2**53 else f" {ends[0]} to {ends[1]}"


def document(stage: _core.StageInfo) -> str:
    lines = [stage["summary"][0].upper() + stage["summary"][1:] + ".", ""]
    for argument in stage["arguments"]:
        several = ", one or several" if argument["list"] else ""
        if argument["type"] == "yesno":
            takes = "True or False"
        elif argument["choices"]:
            takes = _noun(argument)[len("Literal[") : -1].replace(", ", " | ")
        elif argument["type"] == "weighted":
            takes = "(weight, pipeline)"
        else:
            takes = _noun(argument).replace(" | ", " or ") + _range(argument)
        if argument["required"]:
            several += ", required"
        elif argument["default"] is not None:
            several += f", default {default(argument)!r}"
        lines += textwrap.wrap(
            f"{python_name(argument['name'])}: {takes}{several}", 88, subsequent_indent="        "
        )
        lines += textwrap.wrap(
            argument["help"], 88, initial_indent="    ", subsequent_indent="    "
        )
    if stage["arguments"]:
        lines.append("")
    return "\n".join([*lines, f"As text: {stage['example']}"])
