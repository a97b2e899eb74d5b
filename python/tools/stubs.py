"""Prints brim/_stages.pyi: the stages as type checkers and editors see them.

It comes from the table of stages, as the methods themselves do; `make stubs` writes it, and
python/tests/test_stubs.py compares. A list that may be given by position or by its key has two
forms, which Python can only say as overloads.
"""

from __future__ import annotations

import inspect
import textwrap

from brim import _core, _table

HEAD = '''"""The stages as methods and functions. Made by python/tools/stubs.py: `make stubs`."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, overload

from ._pipeline import Pipeline

__all__ = [
{names}
]
'''

COLUMNS = 100


def parameter_text(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    text = star + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def definition(name: str, parameters: list[inspect.Parameter], indent: str, end: str) -> str:
    texts: list[str] = []
    by_keyword = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            by_keyword = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not by_keyword:
            texts.append("*")
            by_keyword = True
        texts.append(parameter_text(parameter))
    line = f"{indent}def {name}({', '.join(texts)}) -> Pipeline:{end}"
    if len(line) <= COLUMNS:
        return line
    inner = "".join(f"{indent}    {text},\n" for text in texts)
    return f"{indent}def {name}(\n{inner}{indent}) -> Pipeline:{end}"


def by_key(stage: _core.StageInfo, parameter: inspect.Parameter) -> inspect.Parameter:
    """A list that stands by position, as it is given by its key."""
    (argument,) = (
        argument
        for argument in stage["arguments"]
        if _table.python_name(argument["name"]) == parameter.name
    )
    return inspect.Parameter(
        parameter.name, parameter.KEYWORD_ONLY, annotation=_table.annotation(argument)
    )


def stub(stage: _core.StageInfo, indent: str) -> str:
    signature = _table.signature(stage, method=indent != "")
    parameters = list(signature.parameters.values())
    document = _table.document(stage)
    if "\n" in document:
        document += "\n"
    body = textwrap.indent(f'"""{document}"""', indent + "    ", lambda line: line.strip() != "")
    first = definition(stage["name"], parameters, indent, "\n" + body)
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return first + "\n"
    others = [
        by_key(stage, parameter) if parameter.kind is parameter.VAR_POSITIONAL else parameter
        for parameter in parameters
    ]
    second = definition(stage["name"], others, indent, " ...")
    return f"{indent}@overload\n{first}\n{indent}@overload\n{second}\n"


def stubs() -> str:
    rows = [stage for stage in _table.table.values() if _table.binding_argument(stage) is None]
    functions = [stage for stage in rows if _table.begins(stage)]
    methods = [stage for stage in rows if not _table.begins(stage)]
    head = HEAD.format(names="\n".join(f'    "{stage["name"]}",' for stage in functions))
    parts = [head, *(stub(stage, "") for stage in functions)]
    parts.append('class Stages:\n    """The stages that continue a pipeline, as methods."""\n')
    parts += [stub(stage, "    ") for stage in methods]
    return "\n".join(parts)


if __name__ == "__main__":
    print(stubs(), end="")
