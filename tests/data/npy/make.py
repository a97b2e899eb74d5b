"""Writes the .npy files beside this script, with numpy. They are committed, so
that the tests need no numpy:  python3 make.py

Element k of an array, counted in C order, is k * 259 + 1, wrapped to the
dtype; its imaginary part, if it has one, is k - 4; as a bool it is k % 3 == 0.
"""

import os

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))


def values(dtype, shape):
    count = int(np.prod(shape, dtype=np.int64))
    index = np.arange(count, dtype=np.int64)
    base = np.dtype(dtype)
    if base.kind == "b":
        flat = index % 3 == 0
    elif base.kind == "c":
        flat = (index * 259 + 1) + 1j * (index - 4)
    else:
        flat = index * 259 + 1
    return flat.astype(base).reshape(shape)


def save(name, array, version=None):
    with open(os.path.join(here, name + ".npy"), "wb") as file:
        np.lib.format.write_array(file, array, version=version)


for code in "b1 u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8 c16".split():
    for order, label in (("<", "little"), (">", "big")):
        save(f"{code}-{label}", values(order + code, (3, 2)))

shapes = [(), (5,), (3, 4), (2, 3, 4), (2, 3, 2, 4)]
for rank, shape in enumerate(shapes):
    save(f"rank{rank}-c", values("<i4", shape))
    save(f"rank{rank}-fortran", np.asfortranarray(values("<i4", shape)))
save("rank8", values("<u2", (2, 1, 2, 1, 2, 1, 2, 1)))
save("rank9", values("<u2", (2, 1, 2, 1, 2, 1, 2, 1, 1)))

for version in (1, 2, 3):
    save(f"version{version}", values("<f4", (4, 3)), (version, 0))

save("no-samples", values("<f4", (0, 3)))
save("no-elements", values("<f4", (3, 0)))
save("structured", np.zeros(3, dtype=[("a", "<f4"), ("b", "<i2", (2,))]))
save("structured-utf8", np.zeros(3, dtype=[("\u03b1", "<f4")]), (3, 0))
save("object", np.array([{"a": 1}, None], dtype=object))
save("void2", np.zeros(4, dtype="V2"))
save("text", np.array(["ab", "c"]))
save("bytes", np.array([b"ab", b"c"]))
save("times", np.array(["2020-01-01"], dtype="datetime64[ns]"))
save("longdouble", np.zeros(2, dtype=np.longdouble))
