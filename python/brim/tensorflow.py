"""brim.tensorflow: a pipeline as a tf.data.Dataset.

    for x, y in brim.tensorflow.dataset(data, memory="256MiB"):
        loss = step(x, y)

Every iteration over the dataset is the next epoch of the pipeline. After an iteration that took at
most one batch, or ended with an error of brim, the next one is the same epoch again, so a look at
the first batch uses up no epoch. A new iteration ends an older one.

A tensor is in brim's memory, without a copy, and its slot is released when the tensor dies. Beyond
`hold` batches, because TensorFlow fetches far ahead or the program collects batches, there are
copies, which the budget counts; if it is used up, tf.data waits. brim works ahead within its
budget, and tells tf.data to add no prefetching: more than `.prefetch(1)` does not help.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import tensorflow as tf

from . import _core
from ._adapters import Source, need_host
from ._opening import opening_by, planner
from ._pipeline import Pipeline
from ._runtime import Progress, Runtime
from ._trainers import AHEAD

__all__ = ["dataset", "plan"]

_opening = opening_by(need_host, least=AHEAD, who="TensorFlow")


def dataset(
    data: Pipeline | str,
    *,
    memory: int | str | None = None,
    runtime: Runtime | None = None,
    fields: str | Sequence[str] | None = None,
    as_dict: bool = False,
    hold: int = AHEAD,
    shard: str | None = None,
    rank: int | None = None,
    world: int | None = None,
    label: str | None = None,
    threads: int | None = None,
    slots: int = 0,
    fixed: bool = False,
    progress: Progress | None = None,
    device: str = "cpu",
) -> tf.data.Dataset:
    """Opens a pipeline as a tf.data.Dataset of tuples of tensors.

    memory: the budget of the process's common runtime; see brim.runtime
    runtime: a brim.Runtime to open it in instead
    fields: the fields of a batch, in order; default: all of the pipeline. It may also name "ids"
        (the samples' numbers) and "valid" (which rows are samples; padding rows are then not cut
        off)
    as_dict: batches are dicts by the fields' names instead of tuples
    hold: batches that TensorFlow may hold at a time before brim copies; at least 3, because
        tf.data looks ahead
    shard: "auto": this process's part by RANK and WORLD_SIZE of the environment
    rank, world: this process's part, given explicitly
    label, threads, slots, fixed, progress: as in Runtime.open
    device: "cpu": batches are in host memory, and TensorFlow moves them from there

    Fields whose rows differ in length are ragged tensors, text and bytes are strings. The first
    dimension of a spec is None if a batch may have fewer rows than others. The dataset has an
    attribute `loader`: `dataset.loader.close()` ends it, as the end of the dataset does; `.stats()`
    has its statistics, and `.classes` the names of labels.
    """
    opening = _opening(
        data,
        memory=memory,
        runtime=runtime,
        hold=hold,
        shard=shard,
        rank=rank,
        world=world,
        label=label,
        threads=threads,
        slots=slots,
        fixed=fixed,
        progress=progress,
        device=device,
    )
    source = Source(opening)
    try:
        return _make(source, source.choose(fields), as_dict)
    except BaseException:
        source.core.close()
        raise


plan = planner(dataset, _opening)


def _make(source: Source, names: tuple[str, ...], as_dict: bool) -> tf.data.Dataset:
    rows = source.rows if source.all_full or source.pads(names) else None
    specs = [_spec(source, name, rows) for name in names]

    # TensorFlow never lets go of a generator's function. The loader is held by the dataset alone,
    # which those that are made from it and its iterators hold in turn.
    weakly = weakref.ref(source)

    def epoch() -> Iterator[Any]:
        strongly = weakly()
        if strongly is None:
            raise _core.ClosedError("the dataset of brim.tensorflow is gone, and so is its loader")

        def convert(values: list[Any]) -> Any:
            return dict(zip(names, values)) if as_dict else tuple(values)

        strongly.again()
        yield from map(convert, strongly.each(iter(strongly.core), names, ragged))

    result = tf.data.Dataset.from_generator(
        epoch, output_signature=dict(zip(names, specs)) if as_dict else tuple(specs)
    )
    if source.batches is not None and not source.may_be_fewer:
        result = result.apply(tf.data.experimental.assert_cardinality(source.batches))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # brim works ahead itself
    result = result.with_options(options)
    result.loader = source
    return result


def _spec(source: Source, name: str, rows: int | None) -> Any:
    if name not in source.fields:
        return tf.TensorSpec((rows,), tf.int64 if name == "ids" else tf.bool)
    field = source.fields[name]
    if field["form"] in ("text", "bytes"):
        return tf.TensorSpec((rows,), tf.string)
    dtype = tf.as_dtype(field["dtype"])
    shape = field["shape"][1:]
    if field["form"] == "dense":
        return tf.TensorSpec((rows, *shape), dtype)
    return tf.RaggedTensorSpec((rows, None, *shape[1:]), dtype, 1, tf.int64)


def ragged(field: _core.Ragged, rows: int) -> Any:
    """The first rows of a field whose rows differ in length, in TensorFlow's memory."""
    if field.form != "ragged":
        strings = [field[row] for row in range(rows)]
        return tf.constant(strings, tf.string, (rows,))
    offsets = numpy.array(field.offsets)[: rows + 1]
    values = numpy.array(field.values)[: offsets[rows]]
    return tf.RaggedTensor.from_row_splits(values, offsets, validate=False)
