"""Tests of jsonl and safetensors against Python's json, and files made by hand.

Needs python3's standard library and BRIM_CLI, the path of the program. test_pandas.py and
test_safetensors.py compare with those packages.
"""

import json
import math
import random
import struct
import subprocess
import zlib

from support import CLI, LIMIT, SANITIZED, Case, brim, main

ALPHABET = "abc \"\\/\b\f\n\r\t\0\x1f\x7fäßλЖ中𝄞😀\u2028\ufeff"


def random_text(rng, most=20):
    return "".join(rng.choices(ALPHABET, k=rng.randrange(most)))


def random_real(rng):
    """A double of any size: most bit patterns are one."""
    while True:
        (value,) = struct.unpack("<d", rng.randbytes(8))
        if math.isfinite(value):
            return value


def random_value(rng, depth=0):
    """Any JSON value."""
    kind = rng.randrange(5 if depth > 3 else 7)
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {random_text(rng, 5): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [None, True, rng.randrange(-2**70, 2**70), random_real(rng), random_text(rng)][kind]


def random_rows(rng, length, number):
    return [[number() for _ in range(length)] for _ in range(rng.choice([0, 1, 1, 2, 5]))]


def png(width, height):
    """A grey image."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress((b"\0" + bytes(width)) * height)) + chunk(b"IEND", b""))


class Json(Case):
    def samples(self, source, *words, **more):
        done = brim("cat", source, "--json", *words, **more)
        self.assertEqual(done.returncode, 0, done)
        return [json.loads(line)["fields"] for line in done.stdout.splitlines()]

    def jsonl(self, lines, options="", name="t.jsonl"):
        path = self.folder / name
        path.write_bytes(b"\n".join(lines))
        return "jsonl '%s' index=beside %s" % (path, options)


class Lines(Json):
    def test_the_same_values_as_pythons_json(self):
        rng = random.Random(1)
        for round_ in range(6 if SANITIZED else 20):
            records, lines = [], []
            for _ in range(200):
                record = {"id": rng.randrange(-2**63, 2**63), "real": random_real(rng),
                          "yes": rng.random() < 0.5, "text": random_text(rng),
                          "list": [rng.randrange(-99, 99) for _ in range(rng.randrange(5))],
                          "reals": [0.5] + [random_real(rng) for _ in range(rng.randrange(5))],
                          "in": {"text": random_text(rng), "side": {"x": rng.randrange(9)}}}
                for _ in range(rng.randrange(3)):
                    record["other " + random_text(rng)] = random_value(rng)
                items = list(record.items())
                rng.shuffle(items)
                records.append(record)
                lines.append(json.dumps(dict(items), ensure_ascii=rng.random() < 0.5,
                                        separators=rng.choice([None, (",", ":"), (" , ", " : ")])
                                        ).encode())
            source = self.jsonl(lines, "fields=id,real,yes,text,list,reals,in.text,in.side.x",
                                "%d.jsonl" % round_)
            told = self.samples(source, "--threads=%d" % rng.randrange(3))
            self.assertEqual(len(told), len(records))
            for got, record in zip(told, records):
                wanted = {key: record[key]
                          for key in ("id", "real", "yes", "text", "list", "reals")}
                wanted["in.text"] = record["in"]["text"]
                wanted["in.side.x"] = record["in"]["side"]["x"]
                self.assertEqual(got, wanted)

    def test_what_is_no_json_to_python_is_none_to_brim(self):
        rng = random.Random(2)
        good = json.dumps({"k": 1, "t": "aä\n😀", "o": {"v": [1, -2.5e3, None, True]}}).encode()
        lines, wanted = [b'{"k":1}'], [True]
        while len(lines) < 3000:
            line = bytearray(good)
            for _ in range(rng.randrange(1, 3)):
                at = rng.randrange(len(line))
                line[at:at + rng.randrange(2)] = rng.choice([b"", rng.choice(b'{}[]",:\\u 1e.-t')
                                                            .to_bytes(1, "big"), rng.randbytes(1)])
            if b"\n" in line or b"\r" in line or not line:
                continue
            try:
                # unlike Python's, JSON has no NaN, and text no half of a surrogate pair
                value = json.loads(line, parse_constant=lambda text: int("no"))
                json.dumps(value, ensure_ascii=False).encode()
                is_good = isinstance(value, dict) and type(value.get("k")) is int
            except ValueError:
                is_good = False
            lines.append(bytes(line))
            wanted.append(is_good)
        source = self.jsonl(lines, "fields=k types=int64")
        done = brim("cat", source + " | batch 64 on_error=skip max_errors=5000", "--json")
        self.assertEqual(done.returncode, 0, done)
        told = {json.loads(line)["sample"] for line in done.stdout.splitlines()}
        for number, (line, is_good) in enumerate(zip(lines, wanted)):
            # a key that comes twice, and an integer of more than 64 bits, are bad data to brim only
            if (number in told) != is_good and line.count(b'"k"') < 2:
                value = json.loads(line)["k"] if is_good else None
                self.assertTrue(is_good and abs(value) >= 2**63, (number, line, is_good))

    def streamed(self, options="", name="t.jsonl"):
        """The samples of a file that comes through a pipe."""
        with open(self.folder / name, "rb") as file:
            feed = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        done = subprocess.run([CLI, "cat", "jsonl - " + options, "--json"], stdin=feed.stdout,
                              stdout=subprocess.PIPE, timeout=LIMIT)
        feed.stdout.close()
        feed.wait()
        self.assertEqual(done.returncode, 0, done)
        return [json.loads(line)["fields"] for line in done.stdout.splitlines()]

    def test_a_stream_gives_the_same(self):
        source = self.jsonl([json.dumps({"a": i, "t": "é" * (i % 70)}).encode()
                             for i in range(2000)])
        self.assertEqual(self.streamed(), self.samples(source))

    def test_lists_of_lists(self):
        """Boxes and the like, indexed and streamed, their types found and given."""
        rng = random.Random(4)
        for round_ in range(2 if SANITIZED else 6):
            lines = [json.dumps({"id": i,
                                 "boxes": random_rows(rng, 4, lambda: rng.randrange(-999, 999)),
                                 "points": random_rows(rng, 3, lambda: random_real(rng)),
                                 "labels": [rng.randrange(9) for _ in range(rng.randrange(4))],
                                 "mask": [[bool(rng.randrange(2)) for _ in range(2)]] * 3},
                                separators=rng.choice([None, (",", ":"), (" , ", " : ")])).encode()
                     for i in range(300)]
            wanted = [json.loads(line) for line in lines]
            words = "fields=id,boxes,points,labels,mask types=mask:bool[3][2]"
            if round_ % 2:
                words += ",boxes:int16[][4],points:float64[][3]"
            name = "%d.jsonl" % round_
            source = self.jsonl(lines, words, name)
            self.assertEqual(self.samples(source, "--threads=%d" % rng.randrange(3)), wanted)
            self.assertEqual(self.streamed(words, name), wanted)
            batched = self.samples(source + " | shuffle seed=1 | cast float32 on=boxes | "
                                   "pad on=points to=5 | batch 7")
            self.assertEqual(len(batched), 300)
            for got in batched:
                line = wanted[got["id"]]
                self.assertEqual(got["boxes"], line["boxes"])
                self.assertEqual(got["points_length"], len(line["points"]))
                self.assertEqual(got["points"],
                                 line["points"] + [[0] * 3] * (5 - len(line["points"])))

    def test_wrong_lists_of_lists(self):
        good = [b'{"boxes":[[1,2,3,4]],"i":0}', b'{"boxes":[],"i":1}']
        bad = [b"[[1,2,3]]", b"[[1,2,3,4],[1,2,3,4,5]]", b"[[]]", b"[1,2,3,4]", b"[[1,2,3,[4]]]",
               b"[[1,2,3,4],5]", b'[[1,2,3,"4"]]', b"[" * 60 + b"]" * 60, b"[" * 9000,
               b"[[1,2,3,4]" + b",[1,2,3,4]" * 5000 + b"]", b"[[" + b"1," * 9000 + b"1]]"]
        lines = good + [b'{"boxes":%s,"i":9}' % value for value in bad] + [b'{"boxes":[],"i":2}']
        source = self.jsonl(lines, "types=boxes:int64[][4]")
        told = self.samples(source + " | batch 2 on_error=skip", "--memory=4MiB")
        self.assertEqual(told, [{"boxes": [[1, 2, 3, 4]], "i": 0}, {"boxes": [], "i": 1},
                                {"boxes": [], "i": 2}])
        for number, value in enumerate(bad):
            done = brim("cat", self.jsonl([b'{"boxes":%s}' % value],
                                          "fields=boxes types=int64[][4]", "bad%d.jsonl" % number))
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"bad%d.jsonl, record 0" % number, done.stderr)
            if value != b"[" * 9000:  # which is no JSON
                self.assertIn(b"key 'boxes'", done.stderr)
        # found in the first records, a length must be the same in them all
        done = brim("cat", self.jsonl([good[0], b'{"boxes":[[1,2]],"i":1}'], name="two.jsonl"))
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"types=boxes:float64[][4]", done.stderr)

    def test_boxes_move_with_their_images(self):
        sizes = [(128, 32), (32, 64), (64, 64)]
        boxes = [[[10, 20, 30, 32], [0, 0, 128, 32]], [], [[1, 2, 3, 4]]]
        for number, (width, height) in enumerate(sizes):
            (self.folder / ("%d.png" % number)).write_bytes(png(width, height))
        path = self.folder / "m.jsonl"
        path.write_text("\n".join(json.dumps({"image": "%d.png" % i, "boxes": boxes[i], "i": i})
                                  for i in range(3)))
        for types in ("", "types=boxes:float32[][4]"):
            told = self.samples("files '%s' index=beside %s | decode on=image | resize 64 64 "
                                "on=image,boxes | batch 2" % (path, types))
            self.assertEqual([fields["i"] for fields in told], [0, 1, 2])
            for fields, rows, (width, height) in zip(told, boxes, sizes):
                self.assertEqual(len(fields["image"]), 64)
                self.assertEqual(fields["boxes"],
                                 [[x0 * 64 / width, y0 * 64 / height, x1 * 64 / width,
                                   y1 * 64 / height] for x0, y0, x1, y1 in rows])

    def test_a_bad_record_is_named(self):
        source = self.jsonl([b'{"a":1}', b'{"a":"x"}', b"{", b'{"a":4}'], "fields=a types=int64")
        told = brim("cat", source)
        self.assertEqual(told.returncode, 1, told)
        for part in (b"t.jsonl, record 1 (byte 8)", b"key 'a'", b"is a string"):
            self.assertIn(part, told.stderr)
        self.assertEqual([fields["a"] for fields in
                          self.samples(source + " | batch 3 on_error=skip")], [1, 4])

    def test_a_small_budget(self):
        lines = [json.dumps({"a": i, "t": "\n" * 40}).encode() for i in range(20000)]
        told = self.good_json("run", self.jsonl(lines) + " | batch 64", "--memory=1MiB")
        self.assertEqual(told["samples"], 20000)
        # strings of the largest size with escapes need no more than was planned
        lines = [json.dumps({"a": i, "t": "\n" * i}).encode() for i in range(0, 30000, 1000)]
        told = self.good_json("run", self.jsonl(lines, name="long.jsonl") + " | batch 1",
                              "--memory=2MiB")
        self.assertEqual(told["samples"], 30)


def tensors_file(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class Tensors(Json):
    def test_values_without_the_package(self):
        data = struct.pack("<6f", 1, 2, 3, 4, 5.5, -6) + struct.pack("<3q", -1, 2**62, 0)
        path = tensors_file(self.folder / "t.safetensors",
                            {"__metadata__": {"made": "by hand"},
                             "f": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
                             "i": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]}}, data)
        for more in ("", "map=yes"):
            told = self.samples("zip (safetensors %s tensor=f %s) (safetensors %s tensor=i name=y)"
                                % (path, more, path))
            self.assertEqual(told, [{"x": [1, 2], "y": -1}, {"x": [3, 4], "y": 2**62},
                                    {"x": [5.5, -6], "y": 0}])


if __name__ == "__main__":
    main()
