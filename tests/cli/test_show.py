"""Tests of `brim show`: the sheets are read back and their pixels compared with the data.

Needs python3's standard library and BRIM_CLI, the path of the program. Sheets are decoded here, by
what the PNG format says; images come from .npy files whose bytes are written here.
"""

import json
import os
import pathlib
import struct
import subprocess
import unittest
import zlib

from support import CLI, LIMIT, Case, brim, main, npy_header, open_terminal

PAPER = (0xf7, 0xf7, 0xf5)
MARGIN = 10  # of the sheet, and between its cells
FRAME = 1  # around each image


def read_png(content):
    """(width, height, rows of (r, g, b)) of an RGB PNG of 8 bits; checksums are compared."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n", content[:8]
    at, data, names = 8, b"", []
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        name, body = content[at + 4:at + 8], content[at + 8:at + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, at + 8 + length)
        assert checksum == zlib.crc32(name + body)
        if name == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            assert form == [8, 2, 0, 0, 0], form
        elif name == b"IDAT":
            data += body
        names.append(name)
        at += 12 + length
    assert names[0] == b"IHDR" and names[-1] == b"IEND" and at == len(content)
    data = zlib.decompress(data)
    stride = 3 * width
    assert len(data) == height * (stride + 1)
    before, rows = bytes(stride), []
    for y in range(height):
        kind, line = data[y * (stride + 1)], bytearray(data[y * (stride + 1) + 1:][:stride])
        if kind == 2:  # most rows of an enlarged image
            line = bytearray(a + b & 255 for a, b in zip(line, before))
        for i in range(0 if kind in (1, 3, 4) else stride, stride):
            a, b = line[i - 3] if i >= 3 else 0, before[i]
            if kind == 4:
                c = before[i - 3] if i >= 3 else 0
                p = a + b - c
                a = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line[i] = line[i] + ((a + b) // 2 if kind == 3 else a) & 255
        before = bytes(line)
        rows.append([tuple(line[i:i + 3]) for i in range(0, stride, 3)])
    return width, height, rows


def gray_png(width, height, pixels):
    def chunk(name, body):
        checksum = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + checksum
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Sheet:
    """A sheet whose cells all hold one image of `width` x `height`, enlarged `scale` times."""

    def __init__(self, path, width, height, scale):
        self.width, self.height, self.rows = read_png(pathlib.Path(path).read_bytes())
        self.image_width, self.image_height, self.scale = width, height, scale
        self.across = width * scale + 2 * FRAME + MARGIN
        self.columns = (self.width - MARGIN) // self.across
        assert self.columns * self.across + MARGIN == self.width, (self.width, self.across)
        # rows of cells are found by the frames, which stand at the left margin
        frame = self.rows[MARGIN][MARGIN]
        self.tops = [y for y in range(1, self.height)
                     if self.rows[y][MARGIN] == frame and self.rows[y - 1][MARGIN] != frame
                     and self.rows[y][MARGIN + 1] == frame and self.rows[y][MARGIN + 20] == frame]

    def image(self, sample):
        """Rows of the image's own pixels; all that one is enlarged to must be alike."""
        left = MARGIN + sample % self.columns * self.across + FRAME
        top = self.tops[sample // self.columns] + FRAME
        rows = []
        for y in range(self.image_height):
            row = []
            for x in range(self.image_width):
                block = {self.rows[top + y * self.scale + v][left + x * self.scale + u]
                         for v in range(self.scale) for u in range(self.scale)}
                assert len(block) == 1, block
                row.append(block.pop())
            rows.append(row)
        return rows

    def words(self, sample):
        """The pixels below the image of a sample, as a text that equal words make equal."""
        left = MARGIN + sample % self.columns * self.across
        top = self.tops[sample // self.columns] + self.image_height * self.scale + 2 * FRAME
        below = [y for y in self.tops if y > top] + [self.height]
        return "\n".join("".join("." if pixel == PAPER else "#" for pixel in
                                 self.rows[y][left:left + self.across - MARGIN])
                         for y in range(top, below[0] - MARGIN))


class Show(Case):
    def write(self, name, dtype, shape, data):
        path = self.folder / name
        path.write_bytes(npy_header(shape, dtype) + data)
        return path

    def show(self, pipeline, *words, name="sheet.png"):
        path = self.folder / name
        done = brim("show", pipeline, "-o", path, *words)
        self.assertEqual(done.returncode, 0, done)
        self.said = done.stderr.decode()
        return path

    def bad(self, code, *words):
        done = brim("show", *words)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(list(self.folder.glob("*.part")), [])
        return done.stderr.decode()

    def colours(self, count=3, height=9, width=12):
        """RGB bytes of some images, and their pixels as rows of tuples."""
        data = bytes(i * 37 % 256 for i in range(count * height * width * 3))
        pixels = [tuple(data[i:i + 3]) for i in range(0, len(data), 3)]
        images = [[pixels[(n * height + y) * width:][:width] for y in range(height)]
                  for n in range(count)]
        return data, images


class Pixels(Show):
    def check(self, path, images, scale=8, slack=0):
        height, width = len(images[0]), len(images[0][0])
        sheet = Sheet(path, width, height, scale)
        for number, image in enumerate(images):
            found = sheet.image(number)
            for y in range(height):
                for x in range(width):
                    for a, b in zip(found[y][x], image[y][x]):
                        self.assertLessEqual(abs(a - b), slack, (number, x, y))
        return sheet

    def test_uint8_is_shown_as_it_is(self):
        data, images = self.colours()
        x = self.write("x.npy", "|u1", (3, 9, 12, 3), data)
        self.check(self.show("npy %s" % x), images)
        self.assertEqual(self.said, "")

    def test_channels_may_come_first(self):
        data, images = self.colours()
        x = self.write("x.npy", "|u1", (3, 9, 12, 3), data)
        self.check(self.show("npy %s | layout chw | batch 4" % x), images)

    def test_normalisation_is_undone(self):
        data, images = self.colours()
        x = self.write("x.npy", "|u1", (3, 9, 12, 3), data)
        for stages in ("normalize imagenet", "normalize unit", "normalize imagenet | layout chw",
                       "normalize mean=0.5 std=0.25", "normalize mean=0.1,0.2,0.3 std=2,3,4",
                       "layout chw | normalize imagenet", "normalize imagenet max=255 on=x",
                       "cast float32", "cast float32 | normalize unit",
                       "cast float32 | normalize imagenet", "normalize unit max=1",
                       "cast float32 | normalize unit max=1", "cast uint16 | normalize unit",
                       "normalize unit | cast float64"):
            with self.subTest(stages=stages):
                self.check(self.show("npy %s | %s | batch 5" % (x, stages)), images)
                self.assertEqual(self.said, "")

    def test_half_precision(self):
        data, images = self.colours()
        x = self.write("x.npy", "|u1", (3, 9, 12, 3), data)
        for dtype, slack in (("float16", 1), ("bfloat16", 2)):
            path = self.show("npy %s | normalize imagenet | cast %s" % (x, dtype))
            self.check(path, images, slack=slack)

    def test_what_copy_made_is_normalised_too(self):
        data, images = self.colours()
        x = self.write("x.npy", "|u1", (3, 9, 12, 3), data)
        path = self.show("npy %s | normalize imagenet | copy x y" % x, "--field", "y")
        self.check(path, images)
        path = self.show("npy %s | copy x y | normalize imagenet on=x" % x, "--field", "y")
        self.check(path, images)

    def test_gray(self):
        data = bytes(i * 5 % 256 for i in range(3 * 16 * 16))
        images = [[[(data[(n * 16 + y) * 16 + x],) * 3 for x in range(16)] for y in range(16)]
                  for n in range(3)]
        for shape in ((3, 16, 16), (3, 16, 16, 1), (3, 1, 16, 16)):
            x = self.write("x.npy", "|u1", shape, data)
            self.check(self.show("npy %s" % x), images, scale=6)
            self.check(self.show("npy %s | normalize mean=0.3 std=0.2" % x), images, scale=6)

    def test_opacity_lets_squares_through(self):
        data = b"".join(bytes((200, 100, 50, 255 * (i % 2))) for i in range(16 * 16))
        x = self.write("x.npy", "|u1", (1, 16, 16, 4), data)
        image = Sheet(self.show("npy %s" % x), 16, 16, 6).image(0)
        self.assertEqual({row[1] for row in image}, {(200, 100, 50)})
        self.assertEqual({pixel for row in image for pixel in row[::2]},
                         {(255, 255, 255), (204, 204, 204)})

    def test_floats_of_no_known_range_are_stretched_and_it_is_said(self):
        values = [i / 10 - 4 for i in range(100)]
        x = self.write("x.npy", "<f4", (1, 10, 10), struct.pack("<100f", *values))
        image = Sheet(self.show("npy %s" % x), 10, 10, 10).image(0)
        self.assertEqual((image[0][0], image[9][9]), ((0, 0, 0), (255, 255, 255)))
        self.assertIn("black at -4 to white at 5.9", self.said)

    def test_floats_from_0_to_1_need_no_stretching(self):
        values = [0.25 + i / 400 for i in range(100)]
        x = self.write("x.npy", "<f4", (1, 10, 10), struct.pack("<100f", *values))
        image = Sheet(self.show("npy %s" % x), 10, 10, 10).image(0)
        self.assertEqual((image[0][0], self.said), ((64, 64, 64), ""))

    def test_what_is_not_a_number_stands_out(self):
        values = [0.5] * 100
        values[55] = float("nan")
        x = self.write("x.npy", "<f4", (1, 10, 10), struct.pack("<100f", *values))
        image = Sheet(self.show("npy %s" % x), 10, 10, 10).image(0)
        self.assertEqual(image[5][5], (255, 0, 255))
        self.assertEqual(image[5][6], (128, 128, 128))
        self.assertIn("magenta", self.said)

    def test_masks_get_a_colour_for_each_class(self):
        classes = [0, 1, 2, 3, 255, 1, 0, 2, 9, 31] * 10
        for dtype, code in (("|u1", "B"), ("<i8", "q"), ("<i4", "i")):
            x = self.write("m.npy", dtype, (1, 10, 10), struct.pack("<100" + code, *classes))
            image = Sheet(self.show("npy %s" % x), 10, 10, 10).image(0)
            colours = dict(zip(classes, image[0]))
            self.assertEqual(len(set(colours.values())), len(set(classes)), dtype)
            self.assertEqual([colours[number] for number in classes[:10]], image[0])
            self.assertGreater(len(set(colours[1])), 1)  # not gray
            self.assertLess(max(colours[0]), 64)
            self.assertGreater(min(colours[255]), 200)

    def test_what_is_decoded_as_a_mask_is_one_whatever_its_classes(self):
        (self.folder / "set").mkdir()
        (self.folder / "set" / "0.png").write_bytes(gray_png(16, 16, bytes([0, 40, 77, 200] * 64)))
        source = "folder %s classes=no index=beside" % (self.folder / "set")
        for mode, gray in (("mask", False), ("gray", True)):
            path = self.show("%s | decode %s | resize 16 16 filter=nearest" % (source, mode))
            row = Sheet(path, 16, 16, 6).image(0)[0]
            self.assertEqual(row, row[:4] * 4)
            self.assertEqual(all(len(set(pixel)) == 1 for pixel in row[1:4]), gray)
        y = self.write("y.npy", "|b1", (1, 16, 16), bytes([0, 1] * 128))
        row = Sheet(self.show("npy %s" % y), 16, 16, 6).image(0)[0]
        self.assertGreater(len(set(row[1])), 1)

    def test_large_images_keep_their_pixels(self):
        data, images = self.colours(2, 30, 100)
        x = self.write("x.npy", "|u1", (2, 30, 100, 3), data)
        self.check(self.show("npy %s" % x), images, scale=1)


class Layout(Show):
    def setUp(self):
        super().setUp()
        self.data, self.images = self.colours(40)
        self.x = self.write("x.npy", "|u1", (40, 9, 12, 3), self.data)

    def told(self, *words):
        done = brim("show", "npy %s" % self.x, "-o", self.folder / "sheet.png", "--json", *words)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def test_sixteen_samples_about_square(self):
        told = self.told()
        self.assertEqual((told["samples"], told["fields"], told["label"]), (16, ["x"], None))
        self.assertTrue(0.6 < told["width"] / told["height"] < 1.7, told)
        width, height, _ = read_png((self.folder / "sheet.png").read_bytes())
        self.assertEqual((told["width"], told["height"]), (width, height))

    def test_columns_and_count(self):
        for count, columns, want in ((40, 5, 5), (40, 10, 10), (3, 7, 3), (1, 1, 1)):
            told = self.told("-n", str(count), "--columns", str(columns))
            self.assertEqual((told["samples"], told["columns"]), (count, want))
            sheet = Sheet(self.folder / "sheet.png", 12, 9, 8)
            self.assertEqual((sheet.columns, len(sheet.tops)), (want, -(-count // want)))

    def test_fewer_samples_than_asked_for(self):
        self.assertEqual(self.told("-n", "1000000000")["samples"], 40)
        self.assertLessEqual(self.told("-n", "1000")["columns"], 8)

    def test_the_order_and_the_epoch_are_the_pipelines(self):
        pipeline = "npy %s | shuffle seed=3 | batch 7" % self.x
        numbers = [int(line.split()[0]) for line in
                   brim("cat", pipeline, "-n", "9").stdout.decode().splitlines()]
        sheet = Sheet(self.show(pipeline, "-n", "9"), 12, 9, 8)
        for place, number in enumerate(numbers):
            self.assertEqual(sheet.image(place), self.images[number])
        other = Sheet(self.show(pipeline, "-n", "9", "--epoch", "1"), 12, 9, 8)
        self.assertNotEqual([other.image(i) for i in range(9)], [sheet.image(i) for i in range(9)])

    def test_it_is_the_same_for_any_threads(self):
        pipeline = "npy %s | shuffle seed=3 | batch 7" % self.x
        sheets = {self.show(pipeline, "--threads", threads).read_bytes() for threads in "013"}
        self.assertEqual(len(sheets), 1)

    def test_rows_that_fill_a_batch_up_are_left_out(self):
        told = json.loads(brim("show", "npy %s | batch 64 remainder=pad" % self.x, "-n", "64", "-o",
                               self.folder / "sheet.png", "--json").stdout)
        self.assertEqual(told["samples"], 40)

    def test_fields_side_by_side(self):
        pipeline = "zip (npy %s) (npy %s name=y) (npy %s name=z)" % (self.x, self.x, self.x)
        told = [json.loads(brim("show", pipeline, "-o", self.folder / "s.png", "--json", "-n", "4",
                                "--columns", "1", *words).stdout)
                for words in ([], ["--field", "x"], ["--field=z,x"])]
        self.assertEqual([one["fields"] for one in told], [["x", "y", "z"], ["x"], ["z", "x"]])
        one, two = told[1]["width"] - 2 * MARGIN, told[2]["width"] - 2 * MARGIN
        self.assertEqual(two, 2 * one + 4)


class Labels(Show):
    def setUp(self):
        super().setUp()
        self.x = self.write("x.npy", "|u1", (4, 9, 12, 3), bytes(4 * 9 * 12 * 3))

    def words(self, source, stages=""):
        """What stands below the samples of a pipeline, as it looks."""
        path = self.show("zip (npy %s) (%s)%s" % (self.x, source, stages), "--columns", "4")
        sheet = Sheet(path, 12, 9, 8)
        return [sheet.words(i) for i in range(4)]

    def test_numbers(self):
        y = self.write("y.npy", "<i4", (4,), struct.pack("<4i", 7, 7, -12, 300))
        words = self.words("npy %s name=label" % y)
        self.assertEqual(len(set(words)), 4)
        left = [word.splitlines() for word in words]
        # the labels stand at the left: the first two are alike, their numbers at the right are not
        self.assertEqual([line[:40] for line in left[0]], [line[:40] for line in left[1]])
        self.assertNotEqual([line[:40] for line in left[0]], [line[:40] for line in left[2]])

    def test_a_vector_of_shares_is_its_class(self):
        y = self.write("y.npy", "<i4", (4,), struct.pack("<4i", 3, 0, 1, 2))
        self.assertEqual(self.words("npy %s name=label" % y),
                         self.words("npy %s name=label" % y, " | one_hot 4 on=label"))
        z = self.write("z.npy", "<f4", (4, 2), struct.pack("<8f", 0.7, 0.3, 0.3, 0.7, 1, 0, 0, 1))
        words = self.words("npy %s name=label" % z)
        self.assertEqual(len(set(words)), 4)
        self.assertGreater(words[0].count("#"), words[2].count("#"))

    def test_any_field_and_none(self):
        text = self.folder / "t.txt"
        text.write_text("a word\nä\n\nmany words that are too many for any two lines of a cell\n")
        words = self.words("text '%s' index=beside" % text)
        self.assertEqual(len(set(words)), 4)
        told = json.loads(brim("show", "npy %s" % self.x, "-o", self.folder / "s.png",
                               "--json").stdout)
        self.assertIsNone(told["label"])


class Folder(Show):
    """Images in folders of classes; the files are written by brim's own sheets."""

    def setUp(self):
        super().setUp()
        source = self.write("x.npy", "|u1", (4, 100, 120, 3),
                            bytes(i * 7 % 256 for i in range(4 * 100 * 120 * 3)))
        for number, name in enumerate(("ant", "ant", "zebra crossing", "owl")):
            (self.folder / "set" / name).mkdir(parents=True, exist_ok=True)
            self.show("npy %s | subset %s" % (source, self.numbers(number)),
                      name="set/%s/%d.png" % (name, number))

    def numbers(self, number):
        path = self.folder / ("only-%d.txt" % number)
        path.write_text("%d\n" % number)
        return path

    def test_classes_have_their_names(self):
        told = json.loads(brim("show", "folder %s index=beside | decode | center_crop 100" %
                               (self.folder / "set"), "-o", self.folder / "sheet.png", "--columns",
                               "4", "--json").stdout)
        self.assertEqual((told["samples"], told["fields"], told["label"]), (4, ["image"], "label"))
        sheet = Sheet(self.folder / "sheet.png", 100, 100, 1)
        words = [sheet.words(i).splitlines() for i in range(4)]
        first = [[line[:18] for line in word] for word in words]
        self.assertEqual(first[0], first[1])  # both begin with "ant"
        self.assertNotEqual(first[0], first[2])
        self.assertGreater("".join(words[3]).count("#"), "".join(words[0]).count("#"))


class Output(Show):
    def setUp(self):
        super().setUp()
        self.x = self.write("x.npy", "|u1", (2, 9, 12, 3), self.colours(2)[0])
        self.pipeline = "npy %s" % self.x

    def test_standard_output(self):
        path = self.show(self.pipeline)
        done = brim("show", self.pipeline, "-o", "-")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout, path.read_bytes())

    def test_not_to_a_terminal(self):
        ours, theirs = open_terminal(self)
        done = subprocess.run([CLI, "show", self.pipeline, "-o", "-"], stdin=subprocess.DEVNULL,
                              stdout=theirs, stderr=subprocess.PIPE, timeout=LIMIT)
        os.close(theirs)
        os.close(ours)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"terminal", done.stderr)

    def test_what_is_said(self):
        done = brim("show", self.pipeline, "-o", self.folder / "sheet.png")
        self.assertRegex(done.stdout.decode(), r"sheet\.png: 2 samples, \d+x\d+ pixels\n$")

    def test_a_file_is_replaced_when_the_sheet_is_complete(self):
        path = self.folder / "sheet.png"
        path.write_text("old")
        self.bad(2, "range 5", "-o", path)
        self.assertEqual(path.read_text(), "old")
        self.show(self.pipeline)
        read_png(path.read_bytes())

    def test_a_device_is_written_to_and_stays_one(self):
        self.assertEqual(brim("show", self.pipeline, "-o", "/dev/null").returncode, 0)
        self.assertFalse(os.path.isfile("/dev/null"))
        if os.path.exists("/dev/full"):
            self.assertIn("No space left", self.bad(1, self.pipeline, "-o", "/dev/full"))

    def test_no_such_folder(self):
        said = self.bad(1, self.pipeline, "-o", self.folder / "no" / "x.png")
        self.assertIn("No such file", said)


class Mistakes(Show):
    def test_no_field_is_an_image(self):
        x = self.write("x.npy", "<f4", (2, 5, 7, 9), bytes(2 * 5 * 7 * 9 * 4))
        said = self.bad(2, "zip (npy %s) (range 2)" % x, "-o", self.folder / "s.png")
        self.assertIn("no field looks like an image", said)
        self.assertRegex(said, r"x float32 5x7x9 \(.*channels\)")
        self.assertRegex(said, r"index int64 scalar \(.*dimensions\)")

    def test_small_matrices_are_images_only_when_named(self):
        x = self.write("x.npy", "<f4", (2, 20, 4), struct.pack("<160f", *[0.5] * 160))
        self.assertIn("--field", self.bad(2, "npy %s" % x, "-o", self.folder / "s.png"))
        self.show("npy %s" % x, "--field", "x")

    def test_fields_that_are_not_there_or_not_images(self):
        x = self.write("x.npy", "|u1", (2, 9, 9), bytes(162))
        pipeline = "zip (npy %s) (range 2)" % x
        said = self.bad(2, pipeline, "-o", self.folder / "s.png", "--field", "x,y")
        self.assertIn("no field 'y'", said)
        self.assertIn("x uint8 9x9", said)
        said = self.bad(2, pipeline, "-o", self.folder / "s.png", "--field", "index")
        self.assertIn("index is not an image", said)
        self.bad(2, pipeline, "-o", self.folder / "s.png", "--field", ",".join(["x"] * 9))
        self.bad(2, pipeline, "-o", self.folder / "s.png", "--field", "x,")

    def test_sheets_that_are_too_large_are_refused(self):
        x = self.folder / "x.npy"
        x.write_bytes(npy_header((1000, 3000, 3000, 3), "|u1"))
        os.truncate(x, x.stat().st_size + 1000 * 3000 * 3000 * 3)
        said = self.bad(2, "npy %s" % x, "-n", "100", "-o", self.folder / "s.png")
        self.assertRegex(said, r"more than 256\.0 MiB: show at most 3 samples")

    def test_a_name_of_another_kind_of_image(self):
        for name in ("x.jpg", "x.JPEG", "x.webp"):
            done = brim("show", "range 3", "-o", self.folder / name)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"the sheet is a PNG", done.stderr)
            self.assertFalse((self.folder / name).exists())

    def test_options(self):
        for words in (["range 5"], ["-o", "x.png"], ["range 5", "-o", ""],
                      ["range 5", "-o", "x.png", "--columns", "0"],
                      ["range 5", "-o", "x.png", "-n", "0"],
                      ["range 5", "-o", "x.png", "--epoch", "-1"],
                      ["range 5", "-o", "-", "--json"], ["range 5", "-o", "x.png", "--npy", "x"]):
            self.bad(2, *words)
        self.assertIn("-o", self.bad(2, "range 5"))

    def test_a_budget_that_is_too_small(self):
        x = self.write("x.npy", "|u1", (2, 9, 9), bytes(162))
        told = self.bad_json(3, "show", "npy %s" % x, "-o", self.folder / "s.png", "--memory", "1")
        self.assertGreater(told["minimum_bytes"], 0)
        self.assertEqual(sorted(os.listdir(self.folder)), ["x.npy"])

    def test_no_samples(self):
        x = self.write("x.npy", "|u1", (2, 9, 9), bytes(162))
        said = self.bad(2, 'npy %s name=x | filter "index < 0"' % x, "-o", self.folder / "s.png")
        self.assertTrue(said)


if __name__ == "__main__":
    main()
