"""Decoding, cropping and resizing against Pillow, bit by bit, and what random stages draw.

Pillow comes from tests/requirements-full.txt; the real files are those of ../shared/data. What is absent
is skipped.
"""

# label: full

import math
import random
import unittest

from support import ROOT, SANITIZED, Rows, main

try:
    import numpy
    from PIL import Image, ImageOps

    from pictures import (DATA, FILTERS, Folder, coordinates, oriented, photograph, pillow_filter)
except ImportError:
    numpy = None

CASES = 100 if SANITIZED else 3000


def box_of(pixels):
    """The part that was resized to 256 x 256 by nearest: left, top, right, bottom."""
    return (int(pixels[0, 0, 0]), int(pixels[0, 0, 1]), int(pixels[-1, -1, 0]) + 1,
            int(pixels[-1, -1, 1]) + 1)


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Pillow(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(self)
        self.rows = self.enterContext(Rows())

    def assertSame(self, ours, theirs, what):
        theirs = numpy.asarray(theirs)
        if theirs.ndim == 2:
            theirs = theirs[:, :, None]
        self.assertEqual(ours.shape, theirs.shape, what)
        if (ours != theirs).any():
            self.fail(f"{what}: {(ours != theirs).mean():.4f} of the bytes differ, by at most "
                      f"{abs(ours.astype(int) - theirs).max()}")

    def check_files(self, files, modes=("rgb", "rgba", "gray"), orient="no"):
        """All of each image; its size is Pillow's to say."""
        place = self.folder.link(*files)
        for number, file in enumerate(files):
            # of the broken files Pillow opens one whose checksum is wrong; brim only if it is told to
            damaged = "keep" if file.name == "xcsn0g01.png" else "fail"
            base = (f'folder "{place}" classes=no extensions=any probe=no | skip {number} | take 1 | '
                    f"decode {{}} orient={orient} room=256MiB damaged={damaged} | ")
            try:
                with Image.open(file) as image:
                    image.load()
                    image = ImageOps.exif_transpose(image) if orient == "yes" else image
                    images = {"rgb": image.convert("RGB"), "rgba": image.convert("RGBA"),
                              "gray": image.convert("L")}
            except Exception:
                with self.assertRaises(RuntimeError, msg=file.name):
                    self.rows.run(base.format("") + "resize 8 8 | batch 1")
                continue
            for mode in modes:
                theirs = images[mode]
                ours = self.rows.run(base.format(mode) + f"crop {theirs.height} {theirs.width} | "
                                     "batch 1")
                self.assertSame(ours[0]["image"][0], theirs, f"{file.name} as {mode}")

    def check_all(self, folder, pattern, *modes, **options):
        files = sorted((DATA / folder).glob(pattern))
        if not files:
            self.skipTest(f"no {DATA / folder}")
        self.check_files(files[::10] if SANITIZED else files, *modes, **options)

    def test_imagenet(self):
        self.check_all("imagenet", "*.JPEG", ("rgb", "gray"))

    def test_orientations(self):
        self.check_all("exif", "*.jpg", ("rgb",), orient="yes")

    def test_png_suite(self):
        self.check_all("png", "*.png")

    def test_webp(self):
        self.check_all("webp", "*.webp")

    def test_kinds_of_jpeg(self):
        place = self.folder.empty()
        for number, (mode, options) in enumerate([
                ("RGB", {"subsampling": 0}), ("RGB", {"subsampling": 1}), ("RGB", {"subsampling": 2}),
                ("RGB", {"progressive": True}), ("L", {}), ("L", {"progressive": True}),
                ("CMYK", {}), ("CMYK", {"progressive": True}), ("RGB", {"keep_rgb": True}),
                ("RGB", {"restart_marker_rows": 1}), ("RGB", {"optimize": True, "quality": 30})]):
            for size in [(1, 1), (17, 5), (130, 67)]:
                image = photograph(*size, number, mode)
                image.save(place / f"{number:02}-{size[0]}.jpg", **options)
        self.check_files(sorted(place.iterdir()))

    def test_kinds_that_pillow_does_not_write(self):
        """YCCK, several scans, rare samplings: small files that libjpeg wrote."""
        files = [ROOT / "fuzz" / "seeds" / "jpeg" / name
                 for name in ("ycck", "cmyk", "rgb", "scans", "progressive-gray", "411", "440")]
        with Image.open(files[0]) as image:
            self.assertEqual((image.mode, image.info["adobe_transform"]), ("CMYK", 2))
        self.check_files(files)

    def test_orientation_of_png_and_webp(self):
        """Also with crops and sizes, which are those of the turned image."""
        draw = random.Random(4)
        for suffix, options in (("png", {}), ("webp", {"lossless": True}), ("webp", {"quality": 70})):
            for orientation in range(1, 9):
                place = self.folder.one(photograph(51, 34, orientation), suffix,
                                        exif=oriented(orientation), **options)
                self.check_files([place / f"image.{suffix}"], ("rgb", "gray"), orient="yes")
                with Image.open(place / f"image.{suffix}") as image:
                    self.assertEqual(image.getexif()[0x0112], orientation)
                    turned = ImageOps.exif_transpose(image).convert("RGB")
                w, h = draw.randint(1, turned.width), draw.randint(1, turned.height)
                x, y = draw.randint(0, turned.width - w), draw.randint(0, turned.height - h)
                text = (f'folder "{place}" classes=no | decode orient=yes | crop {h} {w} x={x} y={y} '
                        "| resize 23 31 | batch 1")
                theirs = turned.crop((x, y, x + w, y + h)).resize((31, 23), pillow_filter("bilinear"))
                self.assertSame(self.rows.run(text)[0]["image"][0], theirs, text)

    def test_resize_and_crop(self):
        """Random sizes, filters and parts, before and after resizing."""
        draw = random.Random(1)
        sources = []
        for i, size in enumerate([(500, 375), (375, 500), (97, 301), (64, 48), (33, 700)]):
            sources.append((self.folder.one(photograph(*size, i), "jpg", quality=90,
                                            subsampling=i % 3), "rgb", "RGB"))
        sources.append((self.folder.one(photograph(211, 160, 9), "jpg", progressive=True), "rgb",
                        "RGB"))
        sources.append((self.folder.one(photograph(120, 77, 10), "png"), "rgb", "RGB"))
        sources.append((self.folder.one(photograph(90, 143, 11, "RGBA"), "png"), "rgba", "RGBA"))
        sources.append((self.folder.one(photograph(300, 200, 12, "L"), "jpg"), "gray", "L"))
        sources.append((self.folder.one(photograph(150, 150, 13), "webp", quality=80), "rgb", "RGB"))
        photographs = sorted((DATA / "imagenet").glob("*.JPEG"))[::29]
        photographs += sorted((DATA / "exif").glob("Portrait_1.jpg"))
        for file in photographs:
            sources.append((self.folder.link(file), "rgb", "RGB"))
        opened = []
        for place, mode, theirs in sources:
            with Image.open(next(place.iterdir())) as image:
                opened.append(image.convert(theirs))
        for _ in range(CASES):
            which = draw.randrange(len(sources))
            place, mode, _ = sources[which]
            image = opened[which]
            stages = []
            for step in range(draw.randint(1, 3)):
                way = draw.choice(["crop", "resize", "shorter", "flip", "center"])
                width, height = image.size
                if way == "crop":
                    w, h = draw.randint(1, width), draw.randint(1, height)
                    x, y = draw.randint(0, width - w), draw.randint(0, height - h)
                    stages.append(f"crop {h} {w} x={x} y={y}")
                    image = image.crop((x, y, x + w, y + h))
                elif way == "center":
                    w, h = draw.randint(1, width), draw.randint(1, height)
                    stages.append(f"center_crop {h} {w}")
                    x, y = int(round((width - w) / 2.0)), int(round((height - h) / 2.0))
                    image = image.crop((x, y, x + w, y + h))
                elif way == "flip":
                    vertical = draw.random() < 0.5
                    stages.append(f"flip {'vertical' if vertical else 'horizontal'} p=1")
                    image = ImageOps.flip(image) if vertical else ImageOps.mirror(image)
                else:
                    name = draw.choice(FILTERS)
                    if way == "resize":
                        h, w = draw.randint(1, 300), draw.randint(1, 300)
                        stages.append(f"resize {h} {w} filter={name}")
                    else:
                        size = draw.randint(1, 120)
                        if max(width, height) * size // min(width, height) > 2000:
                            continue
                        w, h = ((size, int(size * height / width)) if width <= height else
                                (int(size * width / height), size))
                        stages.append(f"resize {size} filter={name}")
                    image = image.resize((w, h), pillow_filter(name))
            text = f'folder "{place}" classes=no | decode {mode} | ' + " | ".join(
                [*stages, f"crop {image.height} {image.width}", "batch 1"])
            self.assertSame(self.rows.run(text)[0]["image"][0], image, text)

    def test_turned(self):
        """Crops and sizes of images that are stored on their side: as if turned first."""
        draw = random.Random(2)
        for orientation in range(1, 9):
            image = photograph(150, 101, orientation)
            place = self.folder.one(image, "jpg", exif=oriented(orientation), quality=95)
            with Image.open(place / "image.jpg") as opened:
                turned = ImageOps.exif_transpose(opened).convert("RGB")
            for _ in range(3 if SANITIZED else 25):
                w, h = draw.randint(1, turned.width), draw.randint(1, turned.height)
                x, y = draw.randint(0, turned.width - w), draw.randint(0, turned.height - h)
                out_w, out_h = draw.randint(1, 90), draw.randint(1, 90)
                name, mirrored = draw.choice(FILTERS), draw.random() < 0.5
                theirs = turned.crop((x, y, x + w, y + h)).resize((out_w, out_h),
                                                                  pillow_filter(name))
                theirs = ImageOps.mirror(theirs) if mirrored else theirs
                text = (f'folder "{place}" classes=no | decode orient=yes | crop {h} {w} x={x} '
                        f"y={y} | resize {out_h} {out_w} filter={name} | flip p={int(mirrored)} | "
                        "batch 1")
                self.assertSame(self.rows.run(text)[0]["image"][0], theirs,
                                f"orientation {orientation}: {text}")

    def test_random_resized_crop(self):
        """The part is the same whatever the filter; its pixels are those of crop and resize."""
        image = coordinates()
        place = self.folder.one(image, "png")
        count = 40 if SANITIZED else 300
        text = f'folder "{place}" classes=no | repeat {count} | decode | random_resized_crop {{}} | '
        boxes = [box_of(batch["image"][0]) for batch in
                 self.rows.run(text.format("256 filter=nearest") + "batch 1")]
        for filter_ in ("bilinear", "bicubic"):
            batches = self.rows.run(text.format(f"97 61 filter={filter_}") + "batch 1")
            for box, batch in zip(boxes, batches):
                theirs = image.crop(box).resize((61, 97), pillow_filter(filter_))
                self.assertSame(batch["image"][0], theirs, f"{box} {filter_}")

    def test_types_and_layouts(self):
        """What is fused into the pass over rows gives the numbers that it would give alone."""
        place = self.folder.one(photograph(100, 80, 3), "png")
        base = f'folder "{place}" classes=no | decode | crop 61 47 x=5 y=9 | '
        pixels = self.rows.run(base + "batch 1")[0]["image"][0]
        mean = numpy.float32([0.485, 0.456, 0.406])
        std = numpy.float32([0.229, 0.224, 0.225])
        scale = (1 / (255 * std.astype("float64").round(3))).astype("float32")
        bias = (0 - mean.astype("float64").round(3) / std.astype("float64").round(3)).astype(
            "float32")
        normal = pixels.astype("float32") * scale + bias
        for stages, expected in [
                ("layout chw", pixels.transpose(2, 0, 1)),
                ("cast float32", pixels.astype("float32")),
                ("cast float32 | layout chw", pixels.astype("float32").transpose(2, 0, 1)),
                ("cast int64 | layout chw", pixels.astype("int64").transpose(2, 0, 1)),
                ("cast float16 | layout chw", pixels.astype("float16").transpose(2, 0, 1)),
                ("normalize imagenet", normal),
                ("normalize imagenet | layout chw", normal.transpose(2, 0, 1)),
                ("layout chw | normalize imagenet", normal.transpose(2, 0, 1)),
                ("normalize imagenet | layout chw | cast float16",
                 normal.astype("float16").transpose(2, 0, 1)),
                ("normalize unit", pixels.astype("float32") * numpy.float32(1 / 255)),
                ("layout whc", pixels.transpose(1, 0, 2)),
                ("reshape 8601", pixels.reshape(-1))]:
            ours = self.rows.run(base + stages + " | batch 1")[0]["image"][0]
            self.assertEqual(ours.dtype, expected.dtype, stages)
            numpy.testing.assert_array_equal(ours, expected, stages)
        ours = self.rows.run(base + "normalize imagenet | layout chw | cast bfloat16 | batch 1")
        bits = normal.transpose(2, 0, 1).copy().view("uint32").astype("uint64")
        bits = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype("uint32").view("float32")
        numpy.testing.assert_array_equal(ours[0]["image"][0], bits)

    def test_plain_resize(self):
        """antialias=no: tf.image.resize's definition in numpy."""
        place = self.folder.one(photograph(75, 52, 4), "png")
        base = f'folder "{place}" classes=no | decode | '
        image = self.rows.run(base + "crop 52 75 | batch 1")[0]["image"][0].astype("float32")
        for out_h, out_w in [(30, 41), (104, 150), (52, 75), (1, 1), (200, 7)]:
            def taps(size, out):
                at = (numpy.arange(out, dtype="float32") + numpy.float32(0.5)) * numpy.float32(
                    numpy.float32(size) / numpy.float32(out)) - numpy.float32(0.5)
                low = numpy.floor(at)
                return (numpy.clip(low, 0, size - 1).astype(int),
                        numpy.clip(low + 1, 0, size - 1).astype(int), (at - low).astype("float32"))
            top, bottom, fy = taps(52, out_h)
            left, right, fx = taps(75, out_w)
            fx, fy = fx[None, :, None], fy[:, None, None]
            above = image[top][:, left] + (image[top][:, right] - image[top][:, left]) * fx
            below = image[bottom][:, left] + (image[bottom][:, right] - image[bottom][:, left]) * fx
            expected = above + (below - above) * fy
            ours = self.rows.run(base + f"resize {out_h} {out_w} antialias=no | batch 1")
            self.assertEqual(ours[0]["image"].dtype, numpy.float32)
            numpy.testing.assert_allclose(ours[0]["image"][0], expected, atol=2e-4)

    def test_fast(self):
        """Another way to the same picture: what docs/images.md says of every photograph."""
        some = "extensions=jpg,jpeg | skip 3 | take 12" if SANITIZED else "extensions=jpg,jpeg"
        for folder, cases in (
                ("imagenet", ["resize 224 224", "resize 170 | center_crop 170", "resize 64 64",
                              "resize 48 filter=lanczos | center_crop 48", "resize 32 32",
                              "resize 96 filter=bicubic | center_crop 80",
                              "resize 170 filter=box | center_crop 170",
                              "random_resized_crop 64 filter=lanczos"]),
                ("exif", ["resize 450 600", "resize 224 | center_crop 224", "resize 100 100",
                          "resize 64 64 filter=lanczos", "crop 400 500 x=33 y=17 | resize 64 80",
                          "resize 100 100 filter=box"])):
            if not (DATA / folder).is_dir():
                self.skipTest(f"no {DATA / folder}")
            for stages in cases:
                exact, fast = (numpy.concatenate([batch["image"] for batch in self.rows.run(
                    f'folder "{DATA / folder}" classes=no {some} | decode fast={fast} | {stages} | '
                    "batch 50")]) for fast in ("no", "yes"))
                error = numpy.square(exact.astype("int32") - fast).mean(axis=(1, 2, 3))
                ratio = 10 * numpy.log10(255 ** 2 / numpy.maximum(error, 1e-9))
                least, middle = (18, 30) if "box" in stages else (25, 40)
                self.assertGreater(ratio.min(), least,
                                   f"{folder} | {stages}, number {ratio.argmin()}")
                self.assertGreater(numpy.median(ratio), middle, f"{folder} | {stages}")
                self.assertTrue((exact != fast).any(), stages)

    def test_fast_by_nearest(self):
        """Single pixels are taken, no averages: those of a mask are in the file."""
        place = self.folder.one(photograph(640, 480, 1, "L"), "jpg", quality=90)
        for mode in ("mask", "gray"):
            exact, fast = (self.rows.run(f'folder "{place}" classes=no | decode {mode} fast={fast} | '
                                         "resize 40 50 filter=nearest | batch 1")[0]["image"]
                           for fast in ("no", "yes"))
            numpy.testing.assert_array_equal(exact, fast)

    def test_fast_mirrored(self):
        files = sorted((DATA / "exif").glob("Landscape_1.jpg"))
        if not files:
            self.skipTest(f"no {DATA / 'exif'}")
        place = self.folder.link(files[0])
        # mirrored before or after: the same part of the image
        with Image.open(files[0]) as image:
            width = image.width
        before, after = (self.rows.run(f'folder "{place}" classes=no | decode fast=yes | {stages} | '
                                       "batch 1")[0]["image"][0].astype(float)
                         for stages in ("flip p=1 | crop 400 501 x=37 y=17 | resize 40 50",
                                        f"crop 400 501 x={width - 37 - 501} y=17 | resize 40 50 | "
                                        "flip p=1"))
        self.assertLess(abs(before - after).max(), 2)


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Drawn(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(self)
        self.place = self.folder.one(coordinates(), "png")

    def test_area_and_ratio(self):
        """Areas are uniform and ratios log-uniform, where every part fits."""
        with Rows() as rows:
            batches = rows.run(f'folder "{self.place}" classes=no | repeat 3000 | decode | '
                               "random_resized_crop 256 filter=nearest scale=0.1,0.5 | batch 100")
        boxes = [box_of(pixels) for batch in batches for pixels in batch["image"]]
        self.assertEqual(len(boxes), 3000)
        widths = numpy.array([right - left for left, _, right, _ in boxes], float)
        heights = numpy.array([bottom - top for _, top, _, bottom in boxes], float)
        area = widths * heights / 65536
        self.assertAlmostEqual(area.mean(), 0.3, delta=0.012)
        self.assertAlmostEqual(area.std(), 0.4 / math.sqrt(12), delta=0.008)
        self.assertLess(area.max(), 0.52)
        self.assertGreater(area.min(), 0.09)
        ratio = numpy.log(widths / heights)
        self.assertAlmostEqual(ratio.mean(), 0, delta=0.016)
        self.assertAlmostEqual(ratio.std(), 2 * math.log(4 / 3) / math.sqrt(12), delta=0.012)
        # places: uniform over where the part fits
        spare = 256 - widths
        left = numpy.array([box[0] for box in boxes])
        inside = spare > 20
        self.assertAlmostEqual((left[inside] / spare[inside]).mean(), 0.5, delta=0.03)

    def test_flip_rate(self):
        with Rows() as rows:
            for way, place in (("horizontal", (0, 0, 0)), ("vertical", (0, 0, 1))):
                for p in (0.5, 0.1):
                    batches = rows.run(f'folder "{self.place}" classes=no | repeat 2000 | decode | '
                                       f"resize 16 16 | flip {way} p={p} | batch 200")
                    flipped = numpy.concatenate([batch["image"][:, place[0], place[1], place[2]] > 127
                                                 for batch in batches]).mean()
                    self.assertAlmostEqual(flipped, p, delta=4 * math.sqrt(p * (1 - p) / 2000))

    def test_any_number_of_threads(self):
        """All random stages: the same bytes from one thread and from several."""
        text = (f'folder "{self.place}" classes=no | repeat 40 | decode | copy image view | '
                "random_resized_crop 48 on=image | random_crop 40 padding=4 on=image | "
                "rotate 30 on=image | color_jitter brightness=0.4 contrast=0.4 saturation=0.4 "
                "hue=0.1 on=image | gaussian_blur 5 on=image | random_erasing on=image | "
                "random_resized_crop 32 on=view | trivial_augment on=view | grayscale p=0.2 "
                "on=view | flip | batch 8")
        results = []
        for threads in (0, 1, 3):
            with Rows(threads=threads) as rows:
                results.append(rows.run(text))
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                for field in ("image", "view"):
                    numpy.testing.assert_array_equal(a[field], b[field])
        first = results[0][0]["image"]
        self.assertTrue(any((first[0] != first[i]).any() for i in range(1, 8)))

    def test_views_differ_and_masks_follow(self):
        """Two views have draws of their own; an image and its mask have the same."""
        mask = self.folder.one(coordinates().split()[0], "png")
        with Rows() as rows:
            views = rows.run(f'folder "{self.place}" classes=no | decode | copy image second | '
                             "random_resized_crop 64 on=image | random_resized_crop 64 on=second | "
                             "batch 1")[0]
            self.assertTrue((views["image"] != views["second"]).any())
            both = rows.run(f'zip (folder "{self.place}" classes=no) (folder "{mask}" classes=no '
                            "field=mask) | repeat 20 | decode on=image | decode mask on=mask | "
                            "random_resized_crop 64 filter=nearest | flip | batch 20")[0]
            numpy.testing.assert_array_equal(both["image"][..., :1], both["mask"])

    def test_types_of_boxes(self):
        """What stands before the geometry is done first; float32 comes out."""
        place = self.folder.path / "b.npy"
        numpy.save(place, numpy.float64([[1.7, 2.2, 8.9, 9.9]]))
        with Rows() as rows:
            text = (f'zip (folder "{self.place}" classes=no) (npy "{place}" name=boxes) | decode | '
                    "{}resize 512 512 on=image,boxes | batch 1")
            for cast, expected in (("", [3.4, 4.4, 17.8, 19.8]),
                                   ("cast int32 on=boxes | ", [2, 4, 16, 18])):
                boxes = rows.run(text.format(cast))[0]["boxes"]
                self.assertEqual(boxes.dtype, numpy.float32)
                numpy.testing.assert_allclose(boxes[0], expected, rtol=1e-6)

    def test_boxes_follow(self):
        """A box around one pixel of the image is around it afterwards."""
        place = self.folder.path / "boxes.npy"
        numpy.save(place, numpy.float32([[[100, 60, 140, 90], [0, 0, 256, 256]]]))
        with Rows() as rows:
            batches = rows.run(f'zip (folder "{self.place}" classes=no) (npy "{place}" name=boxes) | '
                               "repeat 50 | decode | random_resized_crop 256 filter=nearest "
                               "scale=0.5,1 on=image,boxes | flip on=image,boxes | batch 50")
        for pixels, boxes in zip(batches[0]["image"], batches[0]["boxes"]):
            red, green = pixels[..., 0], pixels[..., 1]
            inside = (red >= 100) & (red < 140) & (green >= 60) & (green < 90)
            self.assertEqual(tuple(boxes[1]), (0, 0, 256, 256))
            if not inside.any():
                continue
            ys, xs = numpy.nonzero(inside)
            for got, seen in zip(boxes[0], (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)):
                self.assertLess(abs(got - seen), 2.1)


main()
