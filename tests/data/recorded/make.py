"""Writes the files beside it, which tests/cli/test_recorded.py reads: small files that pandas,
safetensors and Pillow wrote, and what these packages themselves read from them. So the quick tests
compare with these packages without installing them.

    tools/venv full && tools/python tests/data/recorded/make.py

Read the difference before committing it: a new version of a package may write other files.
FILE.json holds the rows of a table, FILE.npz the pixels of an image after each of `STAGES`.
"""

import csv
import json
import pathlib
import random

import numpy
import pandas
import safetensors.numpy
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
STAGES = {
    "whole": lambda image: image,
    "bilinear": lambda image: image.resize((17, 11), Image.Resampling.BILINEAR),
    "lanczos": lambda image: image.crop((5, 3, 33, 27)).resize((40, 31), Image.Resampling.LANCZOS),
}


def record(name, rows):
    (HERE / f"{name}.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


def tables():
    draw = random.Random(1)
    rows = 12
    frame = pandas.DataFrame({
        "i": [draw.randrange(-2**63, 2**63) for _ in range(rows)],
        "f": [draw.gauss(0, 10.0**draw.randrange(-20, 20)) for _ in range(rows)],
        "b": [draw.random() < 0.5 for _ in range(rows)],
        "t": ["x" + "".join(draw.choices('ab ,;"\né', k=9)) for _ in range(rows)],
    })
    for name, options in {
        "pandas.csv": {},
        "pandas-quoted.csv": {"quoting": csv.QUOTE_ALL, "lineterminator": "\r\n"},
        "pandas-tabs.csv": {"sep": "\t", "encoding": "utf-8-sig"},
    }.items():
        table = frame[["i", "f", "t"]]
        table.to_csv(HERE / name, index=False, **options)
        read = pandas.read_csv(HERE / name, sep=options.get("sep", ","))  # exact since pandas 3
        record(name, read.to_dict("records"))
    frame["i"] //= 2**12  # JSON's readers keep 53 bits
    frame.to_json(HERE / "pandas.jsonl", orient="records", lines=True, double_precision=15)
    read = pandas.read_json(HERE / "pandas.jsonl", lines=True, precise_float=True, dtype=False)
    record("pandas.jsonl", read.to_dict("records"))


def tensors():
    draw = numpy.random.default_rng(2)
    kept = {}
    for dtype in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64"):
        raw = draw.integers(-100 if dtype[0] != "u" else 0, 100, (3, 2, 2))
        kept[dtype] = (raw % 2 == 0 if dtype == "bool" else raw).astype(dtype)
    path = HERE / "package.safetensors"
    safetensors.numpy.save_file(kept, path, metadata={"made": "by the package"})
    record(path.name, {name: value.tolist()
                       for name, value in safetensors.numpy.load_file(path).items()})


def photograph(mode):
    """Slopes, edges and noise."""
    draw = numpy.random.default_rng(3)
    y, x = numpy.mgrid[0:29, 0:37]
    planes = [(x * (c + 2) + y * (5 - c)) % 256 * 0.5 + (x // 7 + y // 5) % 2 * 60
              for c in range(len(mode))]
    pixels = numpy.stack(planes, -1) + draw.normal(0, 12, (29, 37, len(mode)))
    pixels = pixels.clip(0, 255).astype("uint8")
    return Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode)


def pictures():
    for name, mode, options in (
        ("444.jpg", "RGB", {"subsampling": 0, "quality": 85}),
        ("420.jpg", "RGB", {"subsampling": 2, "quality": 60}),
        ("progressive.jpg", "RGB", {"progressive": True}),
        ("gray.jpg", "L", {}),
        ("cmyk.jpg", "CMYK", {}),
        ("rgb.png", "RGB", {}),
        ("alpha.png", "RGBA", {}),
        ("lossless.webp", "RGB", {"lossless": True}),
        ("lossy.webp", "RGB", {"quality": 70}),
    ):
        photograph(mode).save(HERE / name, **options)
    photograph("RGB").quantize(16).save(HERE / "palette.png")
    for path in sorted(HERE.iterdir()):
        if path.suffix in (".jpg", ".png", ".webp"):
            with Image.open(path) as image:
                pixels = {stage: numpy.asarray(change(image.convert("RGB")))
                          for stage, change in STAGES.items()}
            numpy.savez_compressed(HERE / f"{path.name}.npz", **pixels)


if __name__ == "__main__":
    tables()
    tensors()
    pictures()
