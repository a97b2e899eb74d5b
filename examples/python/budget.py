"""Training and validation in one budget, with the program's own memory in it too.

    python budget.py

Both loaders stay open. The memory of a loader above its minimum gives way when another loader needs
it, so validating after each epoch needs no clearing. The program charges its own memory explicitly;
a charge that does not fit is refused, and the refusal names the holders.
"""

from __future__ import annotations

import numpy

import brim


def main() -> None:
    x = numpy.zeros((2000, 32, 32, 3), numpy.uint8)
    data = brim.array(x, "image")
    train = data.split("train", validation=0.2).shuffle(seed=7).normalize("unit").batch(64)
    validation = data.split("validation", validation=0.2).normalize("unit").batch(64)

    plan = train.plan(memory="8MiB")
    print(f"training needs {plan.minimum_bytes} bytes, and has use for {plan.planned_bytes}")

    with brim.Runtime(memory="8MiB") as rt:
        rt.charge("2MiB")  # a table that the program is about to make
        with rt.open(train, label="train") as fit, rt.open(validation, label="validation") as check:
            peaks = []
            for _ in range(3):
                rows = [sum(batch.valid_rows for batch in loader) for loader in (fit, check)]
                peaks.append(rt.usage()["peak"])
            print(f"{rows[0]} and {rows[1]} samples an epoch, for the third time")
            print(rt.usage())
            assert max(peaks) <= 8 << 20

            try:
                rt.open(data.normalize("unit").batch(1024), label="too large")
            except brim.BudgetError as error:
                print("refused:", error)


if __name__ == "__main__":
    main()
