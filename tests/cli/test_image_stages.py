"""Stages on images against Pillow and against torchvision's definitions, and what follows an image.

Colours and turns are Pillow's bits, the blur within 1 of 255. Masks, boxes and orientations are
compared by images whose pixels say where they come from, so that what was drawn can be read off.
"""

# label: full

import math
import random
import unittest

from support import SANITIZED, Rows, main

try:
    import numpy
    from PIL import Image, ImageEnhance, ImageOps

    from pictures import DATA, Folder, coordinates, oriented, photograph, pillow_filter
except ImportError:
    numpy = None

CLASSES = [3, 17, 94, 200, 255]  # numbers between which there are others


def photographs(count):
    """Real ones where there are any, and made ones; none very large."""
    files = sorted((DATA / "imagenet").glob("*.JPEG"))
    found = []
    for file in files[::max(1, len(files) // count)]:
        with Image.open(file) as image:
            found.append(image.convert("RGB").crop((0, 0, min(image.width, 320),
                                                    min(image.height, 240))))
    return found + [photograph(97, 83, 1), photograph(64, 120, 2)]


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Colours(unittest.TestCase):
    """color_jitter with a factor that is fixed, gaussian_blur and rotate, on whole images."""

    def setUp(self):
        self.folder = Folder(self)
        self.rows = self.enterContext(Rows())
        self.images = photographs(1 if SANITIZED else 5)
        self.places = [self.folder.one(image, "png") for image in self.images]

    def check(self, stage, model, most=0):
        """`stage` of every image is what `model` makes of it, but for at most `most` of 255."""
        for place, image in zip(self.places, self.images):
            ours = self.rows.run(f'folder "{place}" classes=no | decode | crop {image.height} '
                                 f"{image.width} | {stage} | batch 1")[0]["image"][0]
            apart = abs(ours.astype(int) - numpy.asarray(model(image)).astype(int)).max()
            self.assertLessEqual(apart, most, stage)

    def test_enhancements(self):
        for name, enhance in (("brightness", ImageEnhance.Brightness),
                              ("contrast", ImageEnhance.Contrast),
                              ("saturation", ImageEnhance.Color)):
            for factor in (0, 0.05, 0.3, 0.6, 0.9, 0.999, 1.001, 1.1, 1.37, 1.7, 2, 3.3, 10):
                self.check(f"color_jitter {name}={factor},{factor}",
                           lambda image: enhance(image).enhance(factor))

    def test_hue(self):
        """torchvision's: H of Pillow's 8-bit HSV is turned."""
        def turned(image, turn):
            hue, saturation, value = image.convert("HSV").split()
            hue = (numpy.asarray(hue).astype(int) + int(turn * 255)) % 256
            return Image.merge("HSV", (Image.fromarray(hue.astype("uint8"), "L"), saturation,
                                       value)).convert("RGB")

        for turn in (-0.5, -0.37, -0.25, -0.1, -0.01, 0.004, 0.02, 0.1, 0.3, 0.41, 0.5):
            self.check(f"color_jitter hue={turn},{turn}", lambda image: turned(image, turn))

    def test_blur(self):
        """torchvision's: a normalised bell in float32, reflected at the edges, rounded."""
        def blurred(image, size, sigma):
            x = numpy.linspace(-(size - 1) / 2, (size - 1) / 2, size)
            bell = numpy.exp(-0.5 * (x / sigma) ** 2)
            bell /= bell.sum()
            half = size // 2
            pixels = numpy.pad(numpy.asarray(image).astype(float),
                               ((half, half), (half, half), (0, 0)), "reflect")
            rows = sum(w * pixels[i:i + image.height] for i, w in enumerate(bell))
            return numpy.rint(sum(w * rows[:, i:i + image.width] for i, w in enumerate(bell)))

        for size, sigma in ((1, 1), (3, 0.1), (3, 0.8), (5, 2), (9, 1.3), (23, 0.1), (23, 2),
                            (23, 7.5), (63, 10), (63, 100)):
            self.check(f"gaussian_blur {size} sigma={sigma}",
                       lambda image: blurred(image, size, sigma), most=1)

    def test_rotate(self):
        draw = random.Random(5)
        angles = [0, 0.25, -1, 45, 90, -90, 179.5, 180, 270, 360]
        angles += [draw.uniform(-360, 360) for _ in range(3 if SANITIZED else 30)]
        for angle in angles:
            fill = [draw.randrange(256) for _ in range(3)]
            for filter_ in ("nearest", "bilinear"):
                self.check(f"rotate {angle!r} exact=yes filter={filter_} "
                           f"fill={','.join(map(str, fill))}",
                           lambda image: image.rotate(angle, pillow_filter(filter_),
                                                      fillcolor=tuple(fill)))

    def test_gray_and_alpha(self):
        """Alpha stays beside colours that change, and weights those that are interpolated."""
        for decoding, mode in (("gray", "L"), ("rgba", "RGBA")):
            image = photograph(90, 61, 6, mode)
            place = self.folder.one(image, "png")
            cases = [(f"rotate {angle} exact=yes filter={name} fill=40",
                      image.rotate(angle, pillow_filter(name),
                                   fillcolor=40 if mode == "L" else (40, 40, 40, 255)))
                     for angle in (17, -63.5) for name in ("nearest", "bilinear")]
            cases += [(f"color_jitter {name}={factor},{factor}", enhance(image).enhance(factor))
                      for name, enhance in (("brightness", ImageEnhance.Brightness),
                                            ("contrast", ImageEnhance.Contrast),
                                            ("saturation", ImageEnhance.Color))
                      for factor in (0.3, 1.8)]
            for stage, theirs in cases:
                ours = self.rows.run(f'folder "{place}" classes=no | decode {decoding} | crop 61 90 | '
                                     f"{stage} | batch 1")[0]["image"][0]
                numpy.testing.assert_array_equal(
                    ours, numpy.asarray(theirs).reshape(ours.shape), f"{mode}: {stage}")

    def test_random_angles(self):
        """They are uniform; each is read off the pixel to the right of the centre, which stays."""
        place = self.folder.one(coordinates(81, 81), "png")
        count = 200 if SANITIZED else 2000
        batches = self.rows.run(f'folder "{place}" classes=no | repeat {count} | decode | crop 81 81 '
                                "| rotate 40 | batch 200")
        pixels = numpy.concatenate([batch["image"][:, 40, 76] for batch in batches]).astype(int)
        angles = numpy.degrees(numpy.arctan2(pixels[:, 1] - 40, pixels[:, 0] - 40))
        self.assertLess(abs(angles).max(), 42)
        self.assertAlmostEqual(angles.mean(), 0, delta=4 * 80 / math.sqrt(12 * count))
        self.assertAlmostEqual(angles.std(), 80 / math.sqrt(12), delta=1.5 * math.sqrt(2000 / count))


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Crops(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(self)
        self.rows = self.enterContext(Rows())

    def test_extreme_ratios(self):
        """No try of random_resized_crop fits: torchvision's part in the middle."""
        cases = [((2000, 10), (3 / 4, 4 / 3)), ((10, 2000), (3 / 4, 4 / 3)), ((300, 1), (0.75, 1.25)),
                 ((1, 300), (0.75, 1.25)), ((2000, 10), (1, 1.25)), ((10, 2000), (0.8, 1)),
                 ((7, 500), (0.4, 0.5)), ((901, 22), (0.5, 1.75)), ((3, 999), (0.4, 2))]
        for number, (size, ratio) in enumerate(cases):
            image = photograph(*size, number)
            place = self.folder.one(image, "png")
            width, height = size
            if width / height < ratio[0]:
                w, h = width, int(round(width / ratio[0]))
            else:
                w, h = int(round(height * ratio[1])), height
            x, y = (width - w) // 2, (height - h) // 2
            batch = self.rows.run(f'folder "{place}" classes=no | repeat 10 | decode | '
                                  f"random_resized_crop 32 40 scale=0.5,1 ratio={ratio[0]!r},"
                                  f"{ratio[1]!r} | batch 10")[0]["image"]
            theirs = image.crop((x, y, x + w, y + h)).resize((40, 32), pillow_filter("bilinear"))
            for ours in batch:
                numpy.testing.assert_array_equal(ours, theirs, f"{size} {ratio}")

    def test_random_crop(self):
        """Every place is as likely as any other, and the pixels are those of it."""
        image = coordinates(48, 40)
        place = self.folder.one(image, "png")
        count = 400 if SANITIZED else 6000
        batches = self.rows.run(f'folder "{place}" classes=no | repeat {count} | decode | '
                                "random_crop 40 padding=4 | batch 200")
        padded = numpy.pad(numpy.asarray(image), ((4, 4), (4, 4), (0, 0)))
        places = numpy.zeros((9, 17))
        for pixels in (pixels for batch in batches for pixels in batch["image"]):
            # the middle is never padding
            x, y = int(pixels[20, 20, 0]) - 16, int(pixels[20, 20, 1]) - 16
            numpy.testing.assert_array_equal(pixels, padded[y:y + 40, x:x + 40])
            places[y, x] += 1
        self.assertEqual(places.sum(), count)
        for seen in (places.sum(0), places.sum(1), places.ravel()):
            expected = count / len(seen)
            if expected >= 5:
                chi = ((seen - expected) ** 2 / expected).sum()
                free = len(seen) - 1
                self.assertLess(abs(chi - free), 4 * math.sqrt(2 * free))

    def test_what_is_added(self):
        """All kinds of edges, and images that are filled up."""
        image = photograph(31, 23, 1)
        place = self.folder.one(image, "png")
        marked = self.folder.one(coordinates(31, 23), "png")
        pixels = numpy.asarray(image)
        for edge in ("constant", "edge", "reflect", "symmetric"):
            for size, padding, pad in (((20, 28), 7, "no"), ((30, 40), 5, "yes"), ((25, 33), 0, "yes"),
                                       ((37, 45), 7, "no")):
                x = padding + max(0, size[1] - 31 - 2 * padding)
                y = padding + max(0, size[0] - 23 - 2 * padding)
                options = {"constant_values": 9} if edge == "constant" else {}
                sides = ((y, y), (x, x), (0, 0))
                larger = numpy.pad(pixels, sides, edge, **options)
                where = numpy.pad(numpy.asarray(coordinates(31, 23)), sides, edge,
                                  **({"constant_values": 9} if edge == "constant" else {}))
                text = (f"repeat 10 | decode | random_crop {size[0]} {size[1]} padding={padding} "
                        f"pad={pad} edge={edge} fill=9 | batch 10")
                ours, seen = (self.rows.run(f'folder "{p}" classes=no | {text}')[0]["image"]
                              for p in (place, marked))
                for number in range(10):
                    found = [(y, x) for y in range(larger.shape[0] - size[0] + 1)
                             for x in range(larger.shape[1] - size[1] + 1)
                             if (where[y:y + size[0], x:x + size[1]] == seen[number]).all()]
                    self.assertEqual(len(found), 1, text)
                    y, x = found[0]
                    numpy.testing.assert_array_equal(ours[number],
                                                     larger[y:y + size[0], x:x + size[1]], text)


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Together(unittest.TestCase):
    """An image, its mask and boxes in it: one draw for all three."""

    WIDTH, HEIGHT, ROWS = 90, 70, 40
    BOXES = [[20, 15, 50, 40], [0, 0, 90, 70], [85.5, 3, 89, 60.5]]

    def setUp(self):
        self.folder = Folder(self)
        self.rows = self.enterContext(Rows())
        draw = numpy.random.default_rng(7)
        self.mask = numpy.array(CLASSES, "uint8")[draw.integers(0, len(CLASSES),
                                                                (self.HEIGHT, self.WIDTH))]
        self.boxes = self.folder.path / "boxes.npy"
        numpy.save(self.boxes, numpy.float32([self.BOXES]))

    def run_stage(self, stages, orientation=1):
        """Batches of an image that says where its pixels are, the mask, and the boxes."""
        exif = oriented(orientation)
        image = self.folder.one(coordinates(self.WIDTH, self.HEIGHT), "png", exif=exif)
        mask = self.folder.one(Image.fromarray(self.mask, "L"), "png", exif=exif)
        return self.rows.run(
            f'zip (folder "{image}" classes=no) (folder "{mask}" classes=no field=mask) (npy '
            f'"{self.boxes}" name=boxes) | repeat {self.ROWS} | decode on=image orient=yes | '
            f"decode mask on=mask orient=yes | {stages} | batch {self.ROWS}")[0]

    def check_mask(self, pixels, mask, added, mask_added):
        """Every pixel of the mask is the one that stands where the image's comes from."""
        inside = pixels[..., 2] == 255
        numpy.testing.assert_array_equal(pixels[~inside],
                                         numpy.broadcast_to(added, pixels[~inside].shape))
        expected = numpy.where(inside, self.mask[numpy.where(inside, pixels[..., 1], 0),
                                                 numpy.where(inside, pixels[..., 0], 0)], mask_added)
        numpy.testing.assert_array_equal(mask[..., 0], expected)

    def check_moved(self, stages, size, places, orientation=1):
        """Parts of the turned image: where each begins is read off, and what lies there compared.

        Returns these places, which are among `places` (x, y)."""
        batch = self.run_stage(f"{stages} fill=7,8,9 mask_fill=60 on=image,mask,boxes", orientation)
        image = coordinates(self.WIDTH, self.HEIGHT)
        image.info["exif"] = oriented(orientation).tobytes()
        turned = numpy.asarray(ImageOps.exif_transpose(image))
        height, width = size
        around = 100
        larger = numpy.pad(turned, ((around, around), (around, around), (0, 0)))
        larger[numpy.pad(turned[..., 2], around) == 0] = (7, 8, 9)
        found = []
        for pixels, mask, boxes in zip(batch["image"], batch["mask"], batch["boxes"], strict=True):
            self.check_mask(pixels, mask, (7, 8, 9), 60)
            ys, xs = numpy.nonzero(pixels[..., 2] == 255)
            first = pixels[ys[0], xs[0]]
            y, x = numpy.argwhere((turned == first).all(-1))[0] - (ys[0], xs[0])
            numpy.testing.assert_array_equal(
                pixels, larger[around + y:around + y + height, around + x:around + x + width])
            expected = numpy.float32(self.BOXES) - numpy.float32([x, y, x, y])
            expected[:, 0::2] = expected[:, 0::2].clip(0, width)
            expected[:, 1::2] = expected[:, 1::2].clip(0, height)
            numpy.testing.assert_allclose(boxes, expected, atol=1e-4)
            self.assertIn((x, y), places)
            found.append((int(x), int(y)))
        return found

    def test_random_crop(self):
        places = {(x, y) for x in range(-8, 90 + 8 - 64 + 1) for y in range(-8, 70 + 8 - 48 + 1)}
        found = self.check_moved("random_crop 48 64 padding=8", (48, 64), places)
        self.assertGreater(len(set(found)), 20)
        places = {(x, y) for x in range(-10, 1) for y in range(-30, 1)}
        found = self.check_moved("random_crop 100 100 pad=yes", (100, 100), places)
        self.assertGreater(len(set(found)), 20)

    def test_crop(self):
        self.check_moved("crop 30 40 x=33 y=11", (30, 40), [(33, 11)])
        self.check_moved("crop 60 80 x=33 y=50 pad=yes", (60, 80), [(33, 50)])

    def test_center_crop(self):
        self.check_moved("center_crop 31 44", (31, 44), [(23, 20)])  # 19.5 to even
        self.check_moved("center_crop 99 50 pad=yes", (99, 50), [(20, -14)])
        self.check_moved("center_crop 81 111 pad=yes", (81, 111), [(-10, -5)])

    def test_orientations(self):
        """Boxes are those of the image as it is seen, turned."""
        for orientation in range(1, 9):
            found = self.check_moved("random_crop 40 padding=5", (40, 40),
                                     {(x, y) for x in range(-5, 60) for y in range(-5, 60)},
                                     orientation)
            self.assertGreater(len(set(found)), 20)

    def test_without_fill_for_masks(self):
        """A colour for images is no class."""
        for stage in ("random_crop 100 pad=yes", "crop 100 pad=yes", "center_crop 100 pad=yes",
                      "crop 70 90 | rotate 45 exact=yes"):
            batch = self.run_stage(f"{stage} fill=124,116,104")
            self.check_mask(batch["image"], batch["mask"], (124, 116, 104), 0)
            self.assertTrue((batch["mask"] == 0).any())

    def test_flips(self):
        ways = set()
        for way, axis in (("horizontal", 1), ("vertical", 0)):
            batch = self.run_stage(f"crop 70 90 | flip {way} on=image,mask,boxes")
            plain = numpy.asarray(coordinates(self.WIDTH, self.HEIGHT))
            for pixels, mask, boxes in zip(batch["image"], batch["mask"], batch["boxes"]):
                flipped = bool((pixels != plain).any())
                ways.add((way, flipped))
                numpy.testing.assert_array_equal(pixels,
                                                 numpy.flip(plain, axis) if flipped else plain)
                self.check_mask(pixels, mask, (0, 0, 0), 0)
                expected = numpy.float32(self.BOXES)
                if flipped:
                    side, low = (90, 0) if axis == 1 else (70, 1)
                    expected[:, [low, low + 2]] = side - expected[:, [low + 2, low]]
                numpy.testing.assert_array_equal(boxes, expected)
        self.assertEqual(len(ways), 4)

    def test_rotate(self):
        """Boxes hold what they held, and hardly more."""
        batch = self.run_stage("crop 70 90 | rotate 25 fill=7,8,9 mask_fill=60 on=image,mask,boxes")
        different = set()
        for pixels, mask, boxes in zip(batch["image"], batch["mask"], batch["boxes"]):
            self.check_mask(pixels, mask, (7, 8, 9), 60)
            left, top, right, bottom = self.BOXES[0]
            inside = ((pixels[..., 2] == 255) & (pixels[..., 0] >= left) & (pixels[..., 0] < right)
                      & (pixels[..., 1] >= top) & (pixels[..., 1] < bottom))
            ys, xs = numpy.nonzero(inside)
            seen = xs.min(), ys.min(), xs.max() + 1, ys.max() + 1
            for got, edge in zip(boxes[0], seen):
                self.assertLess(abs(got - edge), 1.5)
            numpy.testing.assert_array_less(-1, boxes)
            self.assertTrue((boxes[:, 0::2] <= 90).all() and (boxes[:, 1::2] <= 70).all())
            different.add(pixels.tobytes())
        self.assertGreater(len(different), self.ROWS // 2)

    def test_masks_by_value(self):
        """No class that was not there, and Pillow's nearest, though no filter was asked for."""
        mask = self.folder.one(Image.fromarray(self.mask, "L"), "png")
        opened = Image.fromarray(self.mask, "L")
        draw = random.Random(8)
        for _ in range(10 if SANITIZED else 100):
            w, h = draw.randint(1, self.WIDTH), draw.randint(1, self.HEIGHT)
            x, y = draw.randint(0, self.WIDTH - w), draw.randint(0, self.HEIGHT - h)
            out_h, out_w = draw.randint(1, 150), draw.randint(1, 150)
            given = draw.choice(["", " filter=bicubic", " filter=lanczos", " antialias=no"])
            text = (f'folder "{mask}" classes=no field=mask | decode mask | crop {h} {w} x={x} y={y} '
                    f"| resize {out_h} {out_w}{given} | batch 1")
            ours = self.rows.run(text)[0]["mask"][0, :, :, 0]
            self.assertLessEqual(set(ours.ravel().tolist()), set(CLASSES), text)
            theirs = opened.crop((x, y, x + w, y + h)).resize((out_w, out_h),
                                                              Image.Resampling.NEAREST)
            numpy.testing.assert_array_equal(ours, theirs, text)

    def test_masks_of_random_parts(self):
        """What random_resized_crop takes of the image it takes of the mask, by nearest."""
        image = self.folder.one(coordinates(self.WIDTH, self.HEIGHT), "png")
        mask = self.folder.one(Image.fromarray(self.mask, "L"), "png")
        opened = Image.fromarray(self.mask, "L")
        text = (f'zip (folder "{image}" classes=no) (folder "{mask}" classes=no field=mask) | '
                "repeat 60 | decode on=image | decode mask on=mask | random_resized_crop {} | "
                "batch 60")
        # so large that the first and last pixel are those of the part
        large = self.rows.run(text.format("180 220 filter=nearest"))[0]["image"].astype(int)
        small = self.rows.run(text.format("37 41"))[0]
        self.assertLessEqual(set(small["mask"].ravel().tolist()), set(CLASSES))
        for number in range(60):
            (x0, y0), (x1, y1) = large[number, 0, 0, :2], large[number, -1, -1, :2] + 1
            part = (x0, y0, x1, y1)
            numpy.testing.assert_array_equal(
                small["mask"][number, :, :, 0],
                opened.crop(part).resize((41, 37), Image.Resampling.NEAREST), f"{part}")
            numpy.testing.assert_array_equal(
                small["image"][number],
                coordinates(self.WIDTH, self.HEIGHT).crop(part).resize(
                    (41, 37), Image.Resampling.BILINEAR), f"{part}")


main()
