"""Images that are cut, damaged, renamed, empty or far too large, and memory that stays in bounds."""

# label: full

import io
import json
import random
import resource
import signal
import struct
import tempfile
import time
import unittest
import zlib

from support import LIMIT, MIB, ROOT, SANITIZED, Case, Rows, brim, main, seconds_worked, start

try:
    import numpy
    from PIL import Image
except ImportError:
    numpy = None

DATA = ROOT.parent / "shared" / "data"


def encoded(image, format_, **options):
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *chunks, interlaced=0):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


def jpeg_header(width, height, kind=0xC0):
    """A JPEG up to its first scan, with any size and nothing behind."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0])
    return (b"\xff\xd8" + b"\xff\xdb\x00\x43\x00" + bytes([1] * 64) +
            b"\xff" + bytes([kind]) + struct.pack(">H", len(frame) + 2) + frame +
            b"\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00" + b"\x12" * 100)


def seconds_of_the_dead():
    """Of the processor, by all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slow_jpeg(width, height, scans):
    """A gray progressive JPEG whose scans but the first do nothing, for every coefficient."""
    def segment(marker, data):
        return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data
    blocks = -(-width // 8) * -(-height // 8)
    empty = segment(0xDA, b"\1\1\0\1\x3f\x10") + bytes(-(-15 * -(-blocks // 16384) // 8))
    return (b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64) +
            segment(0xC2, struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0") +
            segment(0xC4, b"\0\1" + bytes(16)) + segment(0xC4, b"\x10\1" + bytes(15) + b"\xe0") +
            segment(0xDA, b"\1\1\0\0\0\0") + bytes(-(-blocks // 8)) + empty * (scans - 1) +
            b"\xff\xd9")


@unittest.skipIf(numpy is None, "needs Pillow and numpy")
class Bad(Case):
    def setUp(self):
        super().setUp()
        self.place = self.folder
        self.good = Image.fromarray(numpy.random.default_rng(1).integers(
            0, 255, (40, 50, 3), "uint8"))
        self.rows = self.enterContext(Rows(memory=64 * MIB))

    def put(self, name, data):
        (self.place / name).unlink(missing_ok=True)  # a new file, which the folder's time shows
        (self.place / name).write_bytes(data)

    def check(self, bad, *, reason=None):
        """A bad file between two good ones: an error by itself, left out when told so."""
        self.put("a.png", encoded(self.good, "PNG"))
        self.put("b.jpg", bad)
        self.put("c.png", encoded(self.good.rotate(180), "PNG"))
        base = f'folder "{self.place}" classes=no | decode | resize 20 25 | batch 3 '
        with self.assertRaises(RuntimeError) as failed:
            self.rows.run(base)
        self.assertEqual(failed.exception.args[0], "BRIM_STATUS_CORRUPT")
        self.assertIn("b.jpg", failed.exception.args[1])
        if reason is not None:
            self.assertIn(reason, failed.exception.args[1])
        rest = self.rows.run(base + "on_error=skip")[0]["image"]
        self.assertEqual(len(rest), 2)
        expected = [numpy.asarray(image.resize((25, 20), Image.Resampling.BILINEAR))
                    for image in (self.good, self.good.rotate(180))]
        numpy.testing.assert_array_equal(rest, expected)

    def test_empty(self):
        self.check(b"", reason="empty")

    def test_no_image(self):
        self.check(b"GIF89a" + bytes(100), reason="GIF")
        self.check(b"<html><body>404</body></html>")
        self.check(bytes(1000))

    def test_cut(self):
        for data in (encoded(self.good, "JPEG"), encoded(self.good, "JPEG", progressive=True),
                     encoded(self.good, "PNG"), encoded(self.good, "WEBP")):
            for part in (0.1, 0.5, 0.9):
                self.check(data[:int(len(data) * part)])

    def test_renamed(self):
        """What the bytes say counts, not the name."""
        for format_ in ("PNG", "WEBP", "JPEG"):
            options = {"lossless": True} if format_ == "WEBP" else {}
            data = encoded(self.good, format_, **options)
            self.put("picture.jpg", data)
            ours = self.rows.run(f'folder "{self.place}" classes=no | decode | crop 40 50 | batch 1')
            theirs = numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            numpy.testing.assert_array_equal(ours[0]["image"][0], theirs)

    def test_large_webp(self):
        """Decoded piece by piece, which gives the same pixels; cut, it is bad all the same."""
        noise = numpy.random.default_rng(2).integers(0, 255, (75, 100, 4), "uint8")
        large = Image.fromarray(noise, "RGBA").resize((1600, 1200), Image.Resampling.BICUBIC)
        for mode, options in (("RGB", {}), ("RGB", {"lossless": True, "method": 0}), ("RGBA", {}),
                              ("RGBA", {"lossless": True, "method": 0})):
            data = encoded(large.convert(mode), "WEBP", **options)
            for name in ("a.png", "b.jpg", "c.png"):
                (self.place / name).unlink(missing_ok=True)
            self.put("large.webp", data)
            for x, y, width, height in ((0, 0, 1600, 1200), (301, 77, 401, 203)):
                ours = self.rows.run(f'folder "{self.place}" classes=no | decode {mode.lower()} | crop '
                                     f"{height} {width} x={x} y={y} | batch 1")[0]["image"][0]
                theirs = numpy.asarray(Image.open(io.BytesIO(data)).convert(mode))
                numpy.testing.assert_array_equal(ours, theirs[y:y + height, x:x + width])
            (self.place / "large.webp").unlink()
            self.check(data[:len(data) // 2])

    def test_bombs(self):
        self.check(png(65535, 65535, chunk(b"IDAT", zlib.compress(bytes(1000)))))
        self.check(png(100000, 10, chunk(b"IDAT", b"")))
        self.check(png(50, 40, chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(50 * MIB))),
                       chunk(b"IDAT", zlib.compress(bytes(10)))))
        self.check(jpeg_header(65000, 65000), reason="pixels")
        self.check(jpeg_header(0, 10))

    def test_bombs_of_chunks(self):
        """A million tiny chunks, before the data, in it and behind; behind it they are not looked at."""
        tiny = chunk(b"teXt", b"") * 1000000
        data = chunk(b"IDAT", zlib.compress(bytes(40 * 151)))
        self.check(png(50, 40, tiny, data), reason="chunk bomb")
        self.check(png(50, 40, chunk(b"IDAT", b"") * 1000000, data), reason="chunk bomb")
        self.put("b.jpg", png(50, 40, data, tiny))
        self.put("a.png", encoded(self.good, "PNG"))
        self.assertEqual(len(self.rows.run(f'folder "{self.place}" classes=no | decode | resize 20 '
                                           "25 | batch 3")[0]["image"]), 3)
        tiny = b"JUNK\0\0\0\0" * 1000000
        frame = struct.pack("<IIII", 0, 49 << 16, 39 << 8, 0)
        for flags, content in ((0, tiny), (2, tiny), (2, b"ANMF" + struct.pack(
                "<I", len(tiny) + 16) + frame + tiny)):
            body = (b"WEBPVP8X" + struct.pack("<II", 10, flags) + struct.pack("<I", 49)[:3] +
                    struct.pack("<I", 39)[:3] + content)
            self.check(b"RIFF" + struct.pack("<I", len(body)) + body, reason="chunk bomb")

    def test_skipped_are_counted(self):
        """The statistics say how many were left out, and which; none is left out unseen."""
        good = encoded(self.good, "JPEG")
        for i in range(20):
            self.put(f"{i:02}.jpg", good)
        bad = {"03.jpg": b"", "07.jpg": good[:len(good) // 2], "11.jpg": b"<html></html>",
               "12.jpg": jpeg_header(65000, 65000), "19.jpg": png(50, 40)}
        for name, data in bad.items():
            self.put(name, data)
        text = f'folder "{self.place}" classes=no | decode | resize 8 8 | batch 4 on_error={{}}'
        for how, samples, skipped, replaced in (("skip", 15, 5, 0), ("replace", 20, 0, 5)):
            ran = brim("run", text.format(how), "--json", "--index-dir", self.rows.cache.name)
            self.assertEqual(ran.returncode, 0, ran)
            told = json.loads(ran.stdout)
            self.assertEqual((told["samples"], told["skipped"], told["replaced"]),
                             (samples, skipped, replaced))
            named = " ".join(map(str, told["errors"]))
            for name in bad:
                self.assertIn(name, named)
        ran = brim("run", text.format("skip max_errors=4"), "--json", "--index-dir",
                   self.rows.cache.name)
        self.assertNotEqual(ran.returncode, 0)

    def test_scan_bomb(self):
        """A progressive file of thousands of scans."""
        data = encoded(self.good, "JPEG", progressive=True)
        begin = data.index(b"\xff\xda")  # the lowest frequency of all, which may come again
        end = data.index(b"\xff\xc4", begin)
        self.check(data[:begin] + data[begin:end] * 1001 + data[end:], reason="more than 1000 scans")
        self.check(data[:begin] + data[begin:end] * 20000 + data[end:], reason="more than 1000 scans")
        for times in (2, 900):
            self.put("b.jpg", data[:begin] + data[begin:end] * times + data[end:])
            ours = self.rows.run(f'folder "{self.place}" classes=no | skip 1 | take 1 | decode | crop '
                                 "40 50 | batch 1")[0]["image"][0]
            theirs = numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            numpy.testing.assert_array_equal(ours, theirs)

    def test_progressive_too_large(self):
        """The plan says what it would need, and the room, if it is given, what one image has."""
        self.put("huge.jpg", jpeg_header(20000, 20000, 0xC2))
        base = (f'folder "{self.place}" classes=no | decode max_pixels=400000000 {{}} | '
                "random_resized_crop 224 | batch 4")
        with self.assertRaises(RuntimeError) as failed:
            self.rows.run(base.format(""))
        self.assertEqual(failed.exception.args[0], "BRIM_STATUS_BUDGET")
        self.assertRegex(failed.exception.args[1], r"1\.\d GiB of it are for decoding .*huge\.jpg")
        with self.assertRaises(RuntimeError) as failed:
            self.rows.run(base.format("room=4MiB"))
        self.assertEqual(failed.exception.args[0], "BRIM_STATUS_CORRUPT")
        self.assertIn("progressive", failed.exception.args[1])
        self.assertIn("room=", failed.exception.args[1])

    def test_over_the_bound_is_not_planned_for(self):
        """One file that claims to be huge: a bad sample, of which the plan tells, and no memory."""
        text = (f'folder "{self.place}" classes=no | decode {{}} | resize 20 25 | batch 2 '
                "on_error=skip")
        cache = ("--index-dir", self.rows.cache.name)
        for i in range(3):
            self.put(f"{i}.png", encoded(self.good, "PNG"))

        def plan(options=""):
            done = brim("plan", text.format(options), "--json", *cache)
            told = json.loads(done.stdout)
            effect = next(s["effect"] for s in told["stages"] if s["name"] == "decode")
            return told, effect

        before = plan()[0]["scratch_bytes"]
        for kind in ("folder", "files"):
            if kind == "files":
                names = "".join(f"{name}\n" for name in ("0.png", "1.png", "2.png", "huge.jpg"))
                (self.place / "all.csv").write_text("path\n" + names)
                text = (f'files "{self.place / "all.csv"}" | decode {{}} | resize 20 25 | batch 2 '
                        "on_error=skip")
            self.put("huge.jpg", jpeg_header(65500, 65500, 0xC2))
            for _ in range(2):  # found out, and remembered
                told, effect = plan()
                self.assertLess(told["scratch_bytes"], before + 65536)
                self.assertIn("1 over max_pixels=178956970 is a bad sample: ", effect)
                self.assertIn("huge.jpg", effect)
                self.assertRegex(effect, r"to decode \w+: \S*[012]\.png needs the most")
                # what was remembered serves any bound
                told, effect = plan("max_pixels=4294836225")
                self.assertGreater(told["scratch_bytes"], 11 << 30)
                self.assertRegex(effect, r"12\.0 GiB to decode \w+: \S*huge\.jpg needs the most")
                told, effect = plan("max_pixels=1999")
                self.assertIn("4 over max_pixels=1999 are bad samples, such as", effect)
            ran = json.loads(brim("run", text.format(""), "--json", "--memory", "16MiB",
                                  *cache).stdout)
            self.assertEqual((ran["samples"], ran["skipped"]), (3, 1))
            self.assertIn("65500x65500 are 4290250000 pixels, but at most 178956970 are allowed: raise "
                          "decode's max_pixels", str(ran["errors"]))

    def test_interrupted_while_it_decodes(self):
        """Ctrl-C does not wait for a file that takes seconds, on whatever thread it is decoded."""
        self.put("slow.jpg", slow_jpeg(4000, 4000, 1000))
        text = (f'folder "{self.place}" classes=no | decode max_pixels=4000000000 | resize 8 8 | '
                "batch 1 on_error=skip")
        cache = ("--index-dir", self.rows.cache.name)
        self.assertEqual(brim("plan", text, *cache).returncode, 0)
        for threads in (0, 2):
            others = seconds_of_the_dead()
            running = start("run", text, "--threads", threads, *cache)
            self.wait_for("it decodes nothing", lambda: seconds_worked(running) > 1)
            began = time.monotonic()
            before = seconds_worked(running)
            running.send_signal(signal.SIGINT)
            sent = time.monotonic() - began  # this process may stand still in between
            running.communicate(timeout=LIMIT)
            self.assertEqual(running.returncode, 128 + signal.SIGINT)
            # of the processor, so that it does not matter what else the machine does
            self.assertLess(seconds_of_the_dead() - others - before, 1 + sent * (threads + 1))

    def test_changed_in_place(self):
        """Larger than all that were indexed, though no folder changed: never beyond what was planned."""
        for name, size in (("a.png", (300, 8)), ("b.png", (8, 300))):
            self.put(name, encoded(self.good.resize(size), "PNG"))
        for stages in ("resize 8 8", "rotate 30 | resize 8 8", "gaussian_blur 5 | resize 8 8"):
            text = f'folder "{self.place}" classes=no | decode | {stages} | batch 2'
            self.assertEqual(len(self.rows.run(text)[0]["image"]), 2)
        for size in ((300, 300), (301, 8)):
            (self.place / "b.png").write_bytes(encoded(self.good.resize(size), "PNG"))
            for stages in ("resize 8 8", "rotate 30 | resize 8 8", "gaussian_blur 5 | resize 8 8"):
                text = f'folder "{self.place}" classes=no | decode | {stages} | batch 2'
                with self.assertRaises(RuntimeError) as failed:
                    self.rows.run(text)
                self.assertEqual(failed.exception.args[0], "BRIM_STATUS_CORRUPT")
                self.assertIn("touch its directory", failed.exception.args[1])

    def test_no_descriptors(self):
        """Too many open files are not the samples' fault: they are not skipped."""
        for i in range(4):
            self.put(f"{i}.png", encoded(self.good, "PNG"))
        text = f'folder "{self.place}" classes=no | decode | resize 8 8 | batch 2 on_error=skip'
        cache = ("--index-dir", self.rows.cache.name)
        self.assertEqual(brim("run", text, "--quiet", *cache).returncode, 0)
        for most in range(4, 9):
            ran = brim("run", text, "--quiet", "--threads", 0, *cache,
                       before=("prlimit", f"--nofile={most}"))
            if ran.returncode == 0:
                break
        self.assertNotEqual(most, 4)
        self.assertEqual(ran.stdout, brim("run", text, "--quiet", "--threads", 0, *cache).stdout)

    def test_random_damage(self):
        """Bytes flipped at random: pixels or an error, and the neighbours as they were."""
        draw = random.Random(3)
        good = encoded(self.good, "PNG")
        for data in (encoded(self.good, "JPEG"), encoded(self.good, "JPEG", progressive=True),
                     encoded(self.good, "PNG"), encoded(self.good, "WEBP"),
                     encoded(self.good, "WEBP", lossless=True)):
            for _ in range(5 if SANITIZED else 40):
                damaged = bytearray(data)
                for _ in range(draw.randint(1, 4)):
                    damaged[draw.randrange(len(damaged))] = draw.randrange(256)
                self.put("a.png", good)
                self.put("b.jpg", damaged)
                self.put("c.png", good)
                rest = self.rows.run(f'folder "{self.place}" classes=no | decode room=1MiB | resize '
                                     "20 25 | batch 3 on_error=skip")[0]["image"]
                numpy.testing.assert_array_equal(rest[0], rest[-1])
                self.assertIn(len(rest), (2, 3))


def peak_rss(*words):
    """Peak resident bytes of a run that must succeed, as the system counts them."""
    done = brim("run", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["peak_rss_bytes"]


@unittest.skipIf(SANITIZED, "sanitizers take memory of their own")
class Memory(unittest.TestCase):
    def run_photos(self, stages, memory, most):
        if not (DATA / "imagenet").is_dir():
            self.skipTest(f"no {DATA / 'imagenet'}")
        with tempfile.TemporaryDirectory() as cache:
            text = (f'folder "{DATA / "imagenet"}" classes=no | repeat 4 | decode | '
                    f"random_resized_crop 224 | flip | {stages}layout chw | batch 64")
            used = peak_rss(text, "--memory", memory, "--threads", 2, "--index-dir", cache)
            self.assertLess(used, most * MIB)

    def test_float_batches(self):
        self.run_photos("normalize imagenet | ", "96MiB", 112)

    def test_byte_batches(self):
        self.run_photos("", "24MiB", 40)

    @unittest.skipIf(numpy is None, "needs Pillow and numpy")
    def test_huge_among_small(self):
        """400 million pixels in 16 MiB, resident too, beside images of the usual size."""
        with tempfile.TemporaryDirectory() as place:
            # made by repeating the rows of blocks of a small one: all of one colour, coded alike
            make_huge(f"{place}/huge.jpg", 20000, 20000)
            noise = numpy.random.default_rng(1)
            for i in range(7):
                Image.fromarray(noise.integers(0, 255, (300, 400, 3), "uint8")).save(
                    f"{place}/small{i}.jpg")
            text = (f'folder "{place}" classes=no | decode max_pixels=400000000 | '
                    "random_resized_crop 224 | normalize imagenet | batch 4")
            used = peak_rss(text, "--memory", "16MiB", "--index-dir", place)
            self.assertLess(used, 16 * MIB + 16 * MIB)


def make_huge(path, width, height):
    """A baseline 4:2:0 JPEG of any size from one small file: a grey image's blocks are all alike
    (a difference of 0 and no coefficients), so its data are one bit pattern repeated."""
    small = encoded(Image.new("RGB", (16, 16), (128, 128, 128)), "JPEG", subsampling=2)
    frame = small.index(b"\xff\xc0")
    scan = small.index(b"\xff\xda")
    begin = scan + 2 + struct.unpack(">H", small[scan + 2:scan + 4])[0]
    header = bytearray(small[:begin])
    header[frame + 5:frame + 9] = struct.pack(">HH", height, width)
    # the standard tables: luminance 00 and its end of block 1010, chrominance 00 and 00
    block = "00" + "1010"
    chroma = "00" + "00"
    mcu = block * 4 + chroma * 2
    count = -(-width // 16) * -(-height // 16)
    bits = mcu * 8  # a whole number of bytes
    unit = int(bits, 2).to_bytes(len(bits) // 8, "big")
    assert b"\xff" not in unit
    with open(path, "wb") as out:
        out.write(header)
        out.write(unit * (-(-count // 8)))
        out.write(b"\xff\xd9")


main()
