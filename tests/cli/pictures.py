"""What the tests of images share: pictures that are made, places for their files, Pillow's names.

Needs numpy and Pillow, which the tests that import it look for first.
"""

import os
import pathlib
import shutil
import tempfile

import numpy
from PIL import Image

from support import ROOT

DATA = ROOT.parent / "shared" / "data"
FILTERS = ["nearest", "box", "bilinear", "bicubic", "lanczos"]
ORIENTATION = 0x0112  # the tag of EXIF


def pillow_filter(name):
    return getattr(Image.Resampling, name.upper())


def photograph(width, height, seed, mode="RGB"):
    """Slopes, edges and noise."""
    draw = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    channels = [(x * (c + 2) + y * (5 - c)) % 256 * 0.5 + (x // 17 + y // 11) % 2 * 60
                for c in range(len(mode))]
    image = numpy.stack(channels, -1) + draw.normal(0, 12, (height, width, len(mode)))
    image = image.clip(0, 255).astype("uint8")
    return Image.fromarray(image[:, :, 0] if mode == "L" else image, mode)


def coordinates(width=256, height=256):
    """Every pixel says where it is: red is x and green is y. Blue is 255, as in nothing added."""
    y, x = numpy.mgrid[0:height, 0:width]
    return Image.fromarray(numpy.stack([x, y, 0 * x + 255], -1).astype("uint8"), "RGB")


def oriented(orientation):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


class Folder:
    """Folders of one file or several in a temporary place."""

    def __init__(self, test):
        self.path = pathlib.Path(tempfile.mkdtemp())
        test.addCleanup(shutil.rmtree, self.path)
        self.count = 0

    def empty(self):
        place = self.path / f"f{self.count}"
        self.count += 1
        place.mkdir()
        return place

    def one(self, image, suffix, **options):
        """A new folder that holds only this image; returns its path."""
        place = self.empty()
        image.save(place / f"image.{suffix}", **options)
        return place

    def link(self, *files):
        """A new folder of links to these files, in their order."""
        place = self.empty()
        for i, file in enumerate(files):
            os.symlink(file, place / f"{i:05}{file.suffix}")
        return place
