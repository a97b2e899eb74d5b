"""What a pipeline will do and need, before it runs."""

from __future__ import annotations

import html
from typing import Any

from ._bytes import bytes_text, table_text


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


class Plan(dict[str, Any]):
    """A pipeline fitted into a budget, or why it does not fit.

    A dict, whose keys are attributes too: `plan["minimum_bytes"]` is `plan.minimum_bytes`.
    Printed it is the table that `brim plan` shows; notebooks show it as HTML.
    """

    fits: bool
    reason: str  # why it does not fit; "" if it does
    minimum_bytes: int  # smallest limit in which it opens alone
    planned_bytes: int  # what it uses at most
    limit_bytes: int  # what it was fitted into
    limit_origin: str
    slot_bytes: int
    scratch_bytes: int
    stack_bytes: int
    fixed_bytes: int
    window_bytes: int
    device: str  # where batches are delivered: "cpu", "cuda:0"
    device_slot_bytes: int  # on a device; this and the next are 0 on the host
    device_slots: int
    minimum_device_slots: int
    device_fixed_bytes: int
    minimum_device_bytes: int  # smallest limit of the device in which it opens alone
    planned_device_bytes: int
    minimum_pinned_bytes: int
    planned_pinned_bytes: int  # page-locked, which is part of planned_bytes
    threads: int
    slots: int
    minimum_slots: int
    hold: int  # batches that may be held at a time
    copies: bool  # what is kept beyond are copies, as long as these fit
    samples: int | None  # of an epoch, over all ranks; None: not known before its end
    batches: int | None  # that one rank receives in an epoch
    steps: int | None  # batches, with all micro-batches of one counted as one
    batch_rows: int
    sequenced: bool  # rows are assigned while samples are made
    data_fingerprint: int
    sample_fingerprint: int
    order_fingerprint: int
    fields: list[dict[str, Any]]
    stages: list[dict[str, Any]]
    indexes: list[dict[str, Any]]
    classes: dict[str, list[str]]  # names of labels 0, 1, ..., for each field that has them

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a plan has no {name!r}; it has {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def _stage_rows(self) -> list[list[str]]:
        rows = []
        for stage in self["stages"]:
            text = "+ " + stage["text"] if stage["fused"] else stage["text"]
            rows.append([text, bytes_text(stage["bytes"]), stage["effect"]])
        return rows

    def _field_rows(self) -> list[list[str]]:
        rows = []
        for field in self["fields"]:
            form = field["form"]
            dtype = {"dense": field["dtype"], "ragged": f"ragged {field['dtype']}"}.get(form, form)
            shape = [str(length) for length in field["shape"]]
            if form != "dense":
                shape[1] = f"<={shape[1]}"
            rows.append([field["name"], dtype, "x".join(shape), bytes_text(field["bytes"])])
        return rows

    def _figures(self) -> list[tuple[str, str]]:
        epoch = f"{_count(self['samples'])} samples, {_count(self['batches'])} batches"
        if self["steps"] != self["batches"]:
            epoch += f" in {_count(self['steps'])} steps"
        figures = [
            ("epoch", epoch),
            ("minimum", f"{bytes_text(self['minimum_bytes'])} ({self['minimum_bytes']} bytes)"),
            (
                "planned",
                f"{bytes_text(self['planned_bytes'])}: slots of {bytes_text(self['slot_bytes'])}, "
                f"scratch of {bytes_text(self['scratch_bytes'])} and a stack of "
                f"{bytes_text(self['stack_bytes'])} for each thread",
            ),
        ]
        if self["sequenced"]:
            window = bytes_text(self["window_bytes"])
            figures.append(("window", f"{window}: the plan is sequenced"))
        on_host = self["device"] == "cpu"
        slots = f"{self['slots']}{'' if on_host else ' for staging'}, at least "
        slots += f"{self['minimum_slots']}{' for hold=%d' % self['hold'] if on_host else ''}"
        most = "1 batch" if self["hold"] == 1 else f"{self['hold']} batches"
        hold = f"{most} kept at a time, with the one that is asked for"
        hold += "; those beyond are copied as long as that fits" * self["copies"]
        return [
            *figures,
            ("limit", f"{bytes_text(self['limit_bytes'])}: {self['limit_origin']}"),
            ("threads", str(self["threads"] or "0, the calling thread works")),
            ("hold", hold),
            ("slots", slots),
            *([] if on_host else self._device_figures()),
            ("fits", "yes" if self["fits"] else f"no: {self['reason']}"),
        ]

    def _device_figures(self) -> list[tuple[str, str]]:
        """What is delivered on a device takes there, and in page-locked memory."""

        def memory(kind: str) -> str:
            minimum = self[f"minimum_{kind}_bytes"]
            planned = bytes_text(self[f"planned_{kind}_bytes"])
            return f"minimum {bytes_text(minimum)} ({minimum} bytes), planned {planned}"

        return [
            (
                "device",
                f"{self['device']}: {self['device_slots']} slots of "
                f"{bytes_text(self['device_slot_bytes'])}, at least "
                f"{self['minimum_device_slots']} for hold={self['hold']}",
            ),
            ("", memory("device")),
            ("page-locked", memory("pinned")),
            *(
                (
                    "converted",
                    f"{field['name']}: uploaded as uint8, converted to {field['dtype']} "
                    "on the device",
                )
                for field in self["fields"]
                if field["converted"]
            ),
        ]

    def __str__(self) -> str:
        lines = table_text([["stage", "at most", "puts out"], *self._stage_rows()], right={1})
        if any(stage["fused"] for stage in self["stages"]):
            lines.append("(+ is done in one pass with the stage before it)")
        fields = [["field", "dtype", "shape", "a batch"], *self._field_rows()]
        lines += ["", *table_text(fields, right={3}), ""]
        figures = self._figures()
        width = max(len(name) for name, _ in figures) + 2
        lines += [f"{name:<{width}}{figure}" for name, figure in figures]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def row(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

        def table(head: list[str], rows: list[list[str]]) -> str:
            return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"

        return (
            table(["stage", "at most", "puts out"], self._stage_rows())
            + table(["field", "dtype", "shape", "a batch"], self._field_rows())
            + table(["", ""], [[name, figure] for name, figure in self._figures()])
        )
