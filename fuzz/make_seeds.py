#!/usr/bin/env python3
"""Writes fuzz/seeds: small files of every format for the fuzz targets to begin with.

Valid ones, from which the fuzzer learns what a format looks like, and hostile ones that claim what
is not there: each is an attack that some reader once fell for. Needs the standard library only and
writes the same bytes each time. Inputs that once did something wrong are kept as files named
found-*, which this script leaves alone.
"""

import gzip
import io
import json
import pathlib
import struct
import zipfile
import zlib

SEEDS = pathlib.Path(__file__).resolve().parent / "seeds"


def put(target, name, content):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


# ------------------------------------------------------------------------------------------- npy


def npy(shape, dtype="<f4", fortran=False, data=None, version=1, header=None):
    if header is None:
        header = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (dtype, fortran, shape)
    count = 1
    for length in shape if isinstance(shape, tuple) else ():
        count *= length
    if data is None:
        data = bytes(i % 251 for i in range(count * int(dtype[2:])))
    prefix = b"\x93NUMPY" + bytes([version, 0])
    size = "<H" if version == 1 else "<I"
    room = len(prefix) + struct.calcsize(size)
    text = header.encode() + b" " * (-(room + len(header) + 1) % 64) + b"\n"
    return prefix + struct.pack(size, len(text)) + text + data


def npy_seeds():
    good = {
        "f4": npy((5, 3)),
        "u1": npy((4, 2, 2, 3), "|u1"),
        "big-endian": npy((6, 2), ">i2"),
        "fortran": npy((4, 3), "<i8", True),
        "scalars": npy((7,), "|b1", data=bytes(7)),
        "v2": npy((3, 2), "<f8", version=2),
        "v3": npy((3, 2), "<f2", version=3),
        "python2": npy("(3L, 2L)", "<f4", data=bytes(24)),
        "complex": npy((2, 2), "<c8"),
        "empty": npy((0, 3)),
    }
    bad = {
        "object": npy((2,), "|O8", data=b"\x80\x04."),
        "rank0": npy((), "<f4"),
        "overflow": npy("(4294967296, 4294967296, 4)", data=bytes(64)),
        "negative": npy("(-1, 4)", data=bytes(64)),
        "too-long": npy("(1000000, 3)", data=bytes(64)),
        "rank9": npy("(1,1,1,1,1,1,1,1,1)", data=bytes(4)),
        "cut": npy((5, 3))[:-3],
        "cut-header": npy((5, 3))[:40],
        "structured": npy("(2,)", header="{'descr': [('a', '<i4')], 'fortran_order': False, "
                                         "'shape': (2,), }", data=bytes(8)),
        "header-4g": b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFFF) + b"{" * 50,
        "code": npy("(2,)", header="{'descr': '<f4', 'fortran_order': False, "
                                   "'shape': __import__('os').system('x'), }", data=bytes(8)),
    }
    for name, content in {**good, **bad}.items():
        put("npy", name, content)


# ------------------------------------------------------------------------------------------- zip


def npz(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, method)
    return file.getvalue()


def patched(content, signature, offset, layout, *values):
    """`content` with other numbers in the (last) zip structure that begins with `signature`."""
    at = content.rindex(signature) + offset
    new = struct.pack(layout, *values)
    return content[:at] + new + content[at + len(new):]


def zip64(members):
    """The same archive with the directory's end in zip64 structures."""
    content = npz(members)
    at = content.rindex(b"PK\x05\x06")
    count, size, offset = struct.unpack_from("<HII", content, at + 10)
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return content[:at] + end + locator + last


def npz_seeds():
    x, y = npy((5, 3)), npy((4,), "<i8")
    one, two = npz({"x.npy": x}), npz({"x.npy": x, "y.npy": y})
    deflated = npz({"x.npy": npy((50, 4), "|u1", data=bytes(200))}, zipfile.ZIP_DEFLATED)
    central, local, end = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"
    big = 0xFFFFFFF0
    for name, content in {
            "one": one,
            "two": two,
            "deflated": deflated,
            "zip64": zip64({"x.npy": x}),
            "object": npz({"x.npy": npy((2,), "|O8", data=b"\x80\x04.")}),
            "not-npy": npz({"x.txt": b"hello"}),
            "comment": one[:-2] + b"\x05\x00hello",
            "bomb": npz({"x.npy": npy((60000,), "|u1", data=bytes(60000))}, zipfile.ZIP_DEFLATED),
            "bomb-claim": patched(deflated, central, 24, "<I", big),
            "size-claim": patched(one, central, 20, "<II", big, big),
            "offset-claim": patched(one, central, 42, "<I", big),
            "offset-overlap": patched(two, central, 42, "<I", 0),
            "encrypted": patched(one, central, 8, "<H", 1),
            "method": patched(one, central, 10, "<H", 99),
            "crc": patched(deflated, central, 16, "<I", 1),
            "name-claim": patched(one, central, 28, "<H", 0xFFFF),
            "local-name-claim": patched(one, local, 26, "<HH", 0xFFFF, 0xFFFF),
            "entries-claim": patched(one, end, 8, "<HH", 0xFFFE, 0xFFFE),
            "disk": patched(one, end, 4, "<HH", 3, 3),
            "directory-claim": patched(one, end, 12, "<II", big, big),
            "zip64-far": patched(zip64({"x.npy": x}), b"PK\x06\x07", 8, "<Q", 2**63),
            "cut": one[:-10],
            "end-only": end + bytes(18),
    }.items():
        put("npz", name, content)


# --------------------------------------------------------------------------------- idx and others


def idx(kind, dims, data=None, size=1):
    count = size
    for length in dims:
        count *= length
    body = bytes(i % 251 for i in range(count)) if data is None else data
    return bytes([0, 0, kind, len(dims)]) + struct.pack(">%dI" % len(dims), *dims) + body


def zipped(content):
    return gzip.compress(content, mtime=0)


def idx_seeds():
    images, labels = idx(0x08, (5, 4, 4)), idx(0x08, (5,))
    for name, content in {
            "images": images,
            "labels": labels,
            "i16": idx(0x0B, (3, 2), size=2),
            "f32": idx(0x0D, (3, 2), size=4),
            "f64": idx(0x0E, (2, 2), size=8),
            "gzip": zipped(images),
            "gzip-labels": zipped(labels),
            "gzip-claim": zipped(idx(0x08, (4000000000, 28, 28), b"")),
            "gzip-trailing": zipped(images) + b"more",
            "gzip-two": zipped(images[:20]) + zipped(images[20:]),
            "gzip-cut": zipped(images)[:-5],
            "gzip-crc": zipped(images)[:-8] + b"\0\0\0\0" + zipped(images)[-4:],
            "gzip-size": zipped(images)[:-4] + b"\xff\xff\xff\xff",
            "gzip-bomb": zipped(bytes(200000)),
            "gzip-name": b"\x1f\x8b\x08\x08\0\0\0\0\0\xff" + b"n" * 60,
            "trailing": images + b"\0",
            "cut": images[:-1],
            "rank0": idx(0x08, ()),
            "rank255": b"\0\0\x08\xff" + b"\0\0\0\1" * 20,
            "overflow": idx(0x0E, (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), b"x" * 9),
            "kind": idx(0x77, (2,)),
            "empty": idx(0x08, (0, 4)),
    }.items():
        put("idx", name, content)
        if not name.startswith("gzip"):
            put("idx_gzip", name, content)


def fixed_seeds():
    put("cifar", "ten", bytes([7]) + bytes(3072))
    put("cifar", "hundred", bytes([3, 77]) + bytes(3072))
    put("cifar", "cut", bytes(3000))
    put("records", "seven", bytes(range(70)))
    put("records", "fields", bytes(range(5 + 24)))
    put("records", "odd", bytes(11))


def safetensors(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_seeds():
    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    one = {"x": tensor("F32", [4, 2], 0, 32)}
    two = {"x": tensor("I64", [2, 1], 0, 16), "y": tensor("BF16", [3], 16, 22)}
    for name, content in {
            "one": safetensors(one, bytes(range(32))),
            "two": safetensors({"__metadata__": {"format": "pt"}, **two}, bytes(22)),
            "padded": safetensors(json.dumps(one).encode() + b" " * 8, bytes(32)),
            "f8": safetensors({"x": tensor("F8_E4M3", [4], 0, 4)}, bytes(4)),
            "hole": safetensors({"x": tensor("U8", [4], 0, 4), "y": tensor("U8", [4], 6, 10)},
                                bytes(10)),
            "overlap": safetensors({"x": tensor("U8", [4], 0, 4), "y": tensor("U8", [4], 2, 6)},
                                   bytes(6)),
            "short": safetensors(one, bytes(31)),
            "long": safetensors(one, bytes(33)),
            "shape": safetensors({"x": tensor("F32", [4, 3], 0, 32)}, bytes(32)),
            "shape-overflow": safetensors({"x": tensor("F32", [2**62, 2**62, 4], 0, 32)}, bytes(32)),
            "negative": safetensors({"x": tensor("F32", [-4, -2], 0, 32)}, bytes(32)),
            "backwards": safetensors({"x": tensor("F32", [4, 2], 32, 0)}, bytes(32)),
            "offset-2e63": safetensors({"x": tensor("U8", [4], 2**64 - 4, 2**64)}, bytes(4)),
            "header-2e63": safetensors(one, bytes(32), 2**63),
            "header-100mb": safetensors(one, bytes(32), 100000000),
            "header-0": safetensors(b"", b""),
            "duplicate": safetensors(b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                     b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"),
            "metadata": safetensors({"__metadata__": {"a": [1]}, **one}, bytes(32)),
            "deep": safetensors(b'{"x":' + b"[" * 300 + b"]" * 300 + b"}", b""),
            "array": safetensors(b"[1]", b""),
            "utf8": safetensors(b'{"\xff\xfe":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                                b"1"),
    }.items():
        put("safetensors", name, content)


# ----------------------------------------------------------------------------------------- lines


def line_seeds():
    for name, content in {
            "plain": "first\nsecond\nthird\n",
            "open-end": "first\nsecond",
            "crlf": "first\r\nsecond\r\n\r\nlast\r\n",
            "bom": b"\xef\xbb\xbfone\ntwo\n",
            "blank": "\n\n\n",
            "bytes": b"a\x00b\n\xff\xfe\n\xc3\x28\n\xed\xa0\x80\n",
            "utf8": "é\n日本\n\U0001f600\n",
            "long": "x" * 5000 + "\nshort\n",
            "cr": "a\rb\r\rc",
    }.items():
        put("text", name, content)
    for name, content in {
            "numbers": "a,b,c\n1,2.5,3\n4,-5e3,6\n7,,9\n",
            "text": 'a,b\n1,"x, y"\n2,"say ""so"""\n3,"two\nlines"\n4,plain\n',
            "no-header": "1,2\n3,4\n",
            "crlf": "a,b\r\n1,2\r\n3,4\r\n",
            "bom": b"\xef\xbb\xbfa,b\n1,2\n",
            "ragged": "a,b\n1\n1,2,3\n\n4,5\n",
            "open-quote": 'a,b\n1,"never closed\n2,3\n',
            "inner-quote": 'a,b\nx"y,z"\n',
            "nul": b"a,b\n1\x00,2\n",
            "wide": ",".join("c%d" % i for i in range(300)) + "\n" + ",".join("1" * 300) + "\n",
            "same-name": "a,a\n1,2\n",
            "numbers-odd": "a\ninf\n-nan\n1e400\n1e-400\n9223372036854775808\n0x10\n 7 \n+3\n.\n",
            "header-only": "a,b\n",
            "long-field": "a,b\n1," + "y" * 5000 + "\n",
    }.items():
        put("csv", name, content)
    for name, content in {
            "flat": '{"a": 1, "b": {"c": "x"}}\n{"a": 2.5, "b": {"c": "y"}}\n',
            "lists": '{"a": [1, 2, 3], "t": "one"}\n{"a": [], "t": "\\u00e9\\n"}\n',
            "boxes": '{"a": [[1, 2, 3, 4], [5, 6, 7, 8]], "b": []}\n{"a": [], "b": [[0.5]]}\n'
                     '{"a": [[1, 2, 3]]}\n{"a": [1, [2]]}\n{"a": [[1, [2], 3, 4]]}\n',
            "types": '{"a": true, "b": null, "c": "s", "d": -1e5}\n{"a": false}\n',
            "dotted": '{"b.c": 3, "a": 1}\n',
            "surrogate": '{"a": "\\ud83d\\ude00", "b": {"c": "\\ud800"}}\n',
            "deep": '{"a": ' + "[" * 600 + "]" * 600 + "}\n",
            "open": '{"a": [1, 2\n{"a": 1}\n',
            "two": '{"a": 1} {"a": 2}\n',
            "not-object": '[1, 2]\n3\n"x"\n',
            "duplicate": '{"a": 1, "a": 2}\n',
            "numbers": '{"a": 1e999}\n{"a": 123456789012345678901234567890}\n{"a": -0.0}\n',
            "bytes": b'{"a": "\xff\xfe", "b": {"c": "\x00"}}\n',
            "long-list": '{"a": [' + ",".join("7" * 200) + "]}\n",
            "long-key": '{"' + "k" * 3000 + '": 1}\n',
            "blank": '\n\n{"a": 1}\n\n',
    }.items():
        put("jsonl", name, content)


# ---------------------------------------------------------------------------------------- tokens


def megatron(lengths, dtype=8, version=1, documents=None, size=2, sequences=None):
    count = len(lengths)
    documents = count + 1 if documents is None else documents
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, dtype,
                                        count if sequences is None else sequences, documents)
    return (head + struct.pack("<%di" % count, *lengths)
            + struct.pack("<%dq" % count, *(size * sum(lengths[:i]) for i in range(count)))
            + struct.pack("<%dq" % (count + 1), *range(count + 1)))


def token_seeds():
    for name, content in {  # beside 4,096 bytes of tokens
            "whole": megatron([2048]),
            "some": megatron([1000, 48, 1000]),
            "i32": megatron([512, 512], dtype=4, size=4),
            "too-long": megatron([100000]),
            "negative": megatron([-5, 2053]),
            "dtype": megatron([2048], dtype=200),
            "version": megatron([2048], version=2),
            "sequences": megatron([2048], sequences=2**61),
            "documents": megatron([2048], documents=2**63),
            "cut": megatron([1000, 1048])[:50],
    }.items():
        put("megatron", name, content)
    tokens = struct.pack("<40H", *range(40))
    for name, content in {
            "llmc": struct.pack("<256i", 20240520, 1, 40, *[0] * 253) + tokens,
            "claim": struct.pack("<256i", 20240520, 1, -1, *[0] * 253) + tokens,
            "version": struct.pack("<256i", 20240520, 9, 40, *[0] * 253) + tokens,
            "cut": struct.pack("<256i", 20240520, 1, 40, *[0] * 253)[:600],
            "plain": tokens,
            "odd": tokens + b"x",
    }.items():
        put("llmc", name, content)


# ---------------------------------------------------------------------- subsets, states, indexes


def number_seeds():
    for name, content in {
            "some": "# chosen\n1\n5\n5\n999\n\n0\n",
            "range": "1000\n",
            "negative": "-1\n",
            "huge": "18446744073709551616\n",
            "words": "one\n",
            "open-end": "3",
            "empty": "# nothing\n",
    }.items():
        put("subset", name, content)
    for name, content in {
            "i8": npy((3,), "<i8", data=struct.pack("<3q", 5, 1, 999)),
            "u1": npy((4,), "|u1", data=b"\x01\x02\x03\xff"),
            "big-endian": npy((2,), ">u2", data=b"\x00\x01\x00\x02"),
            "range": npy((1,), "<i4", data=struct.pack("<i", 1000)),
            "negative": npy((1,), "<i4", data=struct.pack("<i", -1)),
            "real": npy((2,), "<f4"),
            "matrix": npy((2, 2), "<i4"),
            "claim": npy("(100000000000,)", "<i8", data=bytes(16)),
    }.items():
        put("subset_npy", name, content)

    def state(epoch=0, sample=0, micro=0, world=1, rows=8, micro_rows=3, remainder=0, row=0,
              passed=0, offset=0, given=0, step=0):
        return (b"BRIMSTA2" + bytes(16)
                + struct.pack("<QQIIQQB7xQQQQQ", epoch, sample, micro, world, rows, micro_rows,
                              remainder, row, passed, offset, given, step)
                + bytes(16))

    for name, content in {
            "begin": state(),
            "inside": state(2, 16, 2),
            "end": state(1, 2**64 - 1),
            "past": state(0, 2**63),
            "unaligned": state(0, 3),
            "epoch": state(2**64 - 1, 8),
            "micro": state(0, 8, 2**32 - 1),
            "world": state(0, 8, 0, 7),
            "rows0": state(0, 8, 0, 1, 0, 0),
            "sequenced": state(1, 5, 0, row=3, passed=33, step=4),
            "row": state(0, 5, row=2**40),
            "passed": state(0, 5, passed=2**64 - 1),
            "offset": state(0, 5, offset=7),
            "offset-huge": state(0, 5, offset=2**63),
            "given": state(0, 5, given=2),
            "given-huge": state(0, 5, given=2**64 - 1),
            "step-huge": state(0, 5, step=2**64 - 1),
            "short": b"BRIM",
    }.items():
        put("state", name, content)

    def index(count, largest, total, *entries):
        return (struct.pack("<QQQ", count, largest, total)
                + b"".join(struct.pack("<QQII", at, length, 0, 0) for at, length in entries))

    for name, content in {
            "two": index(2, 6, 10, (0, 6), (7, 4)),
            "overlap": index(3, 100, 300, (0, 100), (50, 100), (10, 100)),
            "outside": index(1, 10, 10, (2**40, 10)),
            "wrap": index(1, 10, 10, (2**64 - 5, 10)),
            "longer-than-largest": index(1, 2, 2, (0, 500)),
            "more-than-there": index(170, 5, 5, (0, 5)),
            "none": index(0, 0, 0),
            "huge": index(2**64 - 1, 2**64 - 1, 2**64 - 1, (0, 5)),
            "empty-records": index(3, 0, 0, (0, 0), (0, 0), (4000, 0)),
            "length-2e47": index(1, 2**47, 2**47, (0, 2**47)),
            "damage-offset": struct.pack("<HQ", 4096, 5),
            "damage-length": struct.pack("<HQ", 4096 + 24 + 8, 3),
            "damage-count": struct.pack("<HQ", 88, 7),
            "damage-hash": struct.pack("<HQ", 2 * 4096 - 8, 0),
    }.items():
        put("index", name, content)

    # places in listing_fuzz.c: of the header, and behind its bytes of the first record
    record = 2872

    def listing(*edits, forged=True, fitted=True, zeros=0):
        return bytes([forged | fitted << 1 | zeros // 64 << 2]) + b"".join(
            struct.pack("<HB", at, len(value)) + value for at, value in edits)

    def u64(value):
        return struct.pack("<Q", value)

    for name, content in {
            "true": listing(),
            "samples": listing((24, u64(2**64 - 1))),
            "classes": listing((32, u64(1))),
            "classes-at": listing((48, u64(2**64 - 32))),
            "directories-at": listing((56, u64(4096 + 32))),
            "unlabelled": listing((32, u64(0)), (72, u64(0))),
            "longest": listing((80, u64(1))),
            "largest": listing((120, u64(1))),
            "largest-huge": listing((120, u64(2**63))),
            "needs-little": listing((128, u64(1) * 4)),
            "needs-much": listing((136, u64(2**47) * 3)),
            "most": listing((160, u64(2**40))),
            "wide": listing((168, u64(2**64 - 1))),
            "label": listing((record + 24, b"\xff\xff\xff\x7f")),
            "root": listing((record + 28, b"\x07")),
            "path": listing((record + 36, b"2")),
            "path-zero": listing((record + 32, b"\0")),
            "path-longer": listing((record + 30, b"\xff\x0f"), zeros=4032),
            "zeros": listing(zeros=64),
            "damage-header": listing((120, b"\x01"), forged=False, fitted=False),
            "damage-path": listing((record + 36, b"2"), forged=False, fitted=False),
            "damage-end": listing(zeros=64, forged=False, fitted=False),
    }.items():
        put("listing", name, content)


# ----------------------------------------------------------------------------------------- caches


def cache_seeds():
    # places in cache_fuzz.c: 192 bytes of the header, its last 16, and the table of kind 0, whose
    # 10 entries of 32 bytes are offset, length, stamp and checksum
    table, heap = 208, 208 + 320

    def cache(*edits, forged=True, kind=0, added=0, cut=0):
        return bytes([forged | (31 + cut // 64 if cut else added // 64) << 2, kind]) + b"".join(
            struct.pack("<HB", at, len(value)) + value for at, value in edits)

    def u64(*values):
        return struct.pack("<%dQ" % len(values), *values)

    for name, content in {
            "true": cache(forged=False),
            "true-text": cache(forged=False, kind=1),
            "true-csv": cache(forged=False, kind=2),
            "count-0": cache((48, u64(0))),
            "count-huge": cache((48, u64(2**58))),
            "count-wraps": cache((48, u64(2**59))),
            "most-bytes": cache((56, u64(2**64 - 1)), (table + 8, u64(2**63))),
            "verify": cache((20, b"\xff\xff\xff\xff")),
            "pipeline": cache((88, b"\xff" * 100)),
            "version": cache((16, b"\x02")),
            "byte-order": cache((8, bytes(range(1, 9)))),
            "offset-header": cache((table, u64(0))),
            "offset-table": cache((table, u64(4096))),
            "offset-odd": cache((table, u64(8193))),
            "offset-wraps": cache((table, u64(2**64 - 64, 128))),
            "offset-behind": cache((table, u64(2**20))),
            "length-0": cache((table + 8, u64(0))),
            "length-1": cache((table + 8, u64(1))),
            "length-all": cache((table + 8, u64(2**64 - 1))),
            "overlap": cache((table + 32, u64(8192 + 64, 28)), (table + 64, u64(8192 + 64, 28))),
            "stamp": cache((table + 16, u64(7))),
            "parts": cache((heap, u64(2**64 - 1)), kind=1),
            "parts-more": cache((heap, u64(1025)), kind=2),
            "longer": cache((table + 8, u64(64)), added=64),
            "cut": cache(cut=64, forged=False),
            "cut-heap": cache(cut=32 * 64, forged=False),
            "damage-header": cache((30, b"\x01"), forged=False),
            "damage-magic": cache((0, b"B"), forged=False),
            "damage-magics": cache((0, b"B"), (200, b"B"), forged=False),
            "damage-table": cache((table + 24, b"\x01\x02"), forged=False),
            "damage-heap": cache((heap + 3, b"\x01"), forged=False),
            "damage-text": cache((heap + 8, b"\x01"), forged=False, kind=1),
            "raw-nothing": b"\x02\x00",
            "raw-text": b"\x02\x00hello",
            "raw-magic": b"\x02\x00brimcch\n",
            "raw-page": b"\x02\x00brimcch\n" + bytes(4080) + b"brimcch\n",
    }.items():
        put("cache", name, content)


# ------------------------------------------------------------------------------------- pipelines


def pipeline_seeds():
    texts = [
        "range 100 | shuffle seed=7 | batch 8",
        "range 9999 | split train validation=0.2 | take 50 | skip 3 | repeat 2 | batch 7 remainder=pad",
        "npy x.npy | cast float32 | batch 4 micro=2",
        "npy x.npy name=image map=yes | reshape 2 3 1 | layout chw from=hwc | normalize mean=1 std=2 | batch 3",
        "zip (npy x.npy) (range 12) | batch 5 on_error=skip",
        "mix 0.7 (range 10) 0.3 (range 20 | shuffle) length=40 | batch 6",
        "concat (range 10) (range 5) | shuffle block=4 | batch 4",
        "csv c.csv index=beside | balance label | batch 4",
        "csv c.csv columns=label,score types=int64,float32 index=beside | filter \"label == 1\" "
        "\"score > 0.5\" | batch 2",
        "csv c.csv columns=label,score pack=yes name=v index=beside | batch 4",
        "jsonl j.jsonl index=beside | pad on=ids to=4 value=9 | batch 3",
        "jsonl j.jsonl fields=ids,label index=beside | filter 'length(ids) > 0' | batch 2",
        "text l.txt index=beside max_bytes=100 | batch 2",
        "text - max_bytes=64 | shuffle buffer=4KiB | batch 3",
        "records - bytes=2 | repeat 2 | batch 3",
        "range 50 | filter \"index > 9\" | shuffle buffer=4KiB seed=2 | batch 4",
        "range 50 | subset n.txt | batch 4",
        "npy x.npy | unbatch | batch 4",
        "range 30 | fold 1 of=3 part=train | batch 4",
        "csv c.csv index=beside | split train validation=0.5 stratify=label | batch 1",
        "csv c.csv index=beside | weighted label weights=1,3 length=20 | batch 4",
        "jsonl j.jsonl fields=ids max_length=4 index=beside | pad on=ids | bucket 8 buffer=4KiB "
        "edges=2,4",
        "jsonl j.jsonl fields=ids index=beside | pack_sequences 8 | batch 2",
        "range 10 | one_hot 10 on=index | batch 2 per=global",
        "tokens l.txt length=4 stride=2 shift=no format=u16 | batch 2",
        "records l.txt bytes=2 | batch 2",
        "array @a | map @f version=2 | batch 1",
        "range 0x10 | batch 1e3",
        "npy 'a b.npy' \"c\\\"d\" | batch 4KiB",
        "range 10 | batch 99999999999999999999",
        "((((((((range 1))))))))",
        "mix 1 (mix 1 (mix 1 (mix 1 (range 1)))) | batch 1",
        "range 10 |",
        "| batch",
        "batch 4 | range 10",
        "normalize mean=nan std=inf,-1 | range -5",
        "rnage 10 | bach 4",
    ]
    for number, text in enumerate(texts):
        for target in ("parse", "plan"):
            put(target, "%02d" % number, text)


def guess_seeds():
    for name, content in {
            "npy": npy((5, 3)),
            "npz": npz({"x.npy": npy((2, 2))}),
            "zip": npz({"x.txt": b"hello"}),
            "idx": idx(0x08, (3, 2)),
            "idx-gzip": zipped(idx(0x08, (3, 2))),
            "gzip": zipped(b"hello"),
            "safetensors": safetensors({"x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}},
                                       b"ab"),
            "csv": "a,b\n1,2\n",
            "jsonl": '{"a": 1}\n',
            "text": "hello\nworld\n",
            "llmc": struct.pack("<256i", 20240520, 1, 4, *[0] * 253) + bytes(8),
            "megatron": megatron([4]),
            "empty": b"",
            "zlib": zlib.compress(b"hello"),
    }.items():
        put("guess", name, content)


# ---------------------------------------------------------------------------------------- images


def png_chunk(name, data=b""):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, kind, rows, *chunks, interlaced=0):
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + b"".join(chunks)
            + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND"))


def png_seeds():
    palette = png_chunk(b"PLTE", bytes(range(12)))
    exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    for name, content in {
            "gray1": png(9, 2, 1, 0, b"\0\xa5\x80\x02\x5a\0"),
            "gray16": png(2, 2, 16, 0, b"\0\1\2\3\4\1\0\1\0\2", png_chunk(b"tRNS", b"\0\2")),
            "rgb8": png(2, 2, 8, 2, b"\3abcdef\4ghijkl", png_chunk(b"tRNS", b"\0a\0b\0c")),
            "palette2": png(5, 1, 2, 3, b"\0\x1b\x40", palette, png_chunk(b"tRNS", b"\x80")),
            "palette8-outside": png(3, 1, 8, 3, b"\0\1\2\xff", palette),
            "gray-alpha8": png(2, 1, 8, 4, b"\1\1\2\3\4"),
            "rgba16": png(1, 1, 16, 6, b"\0abcdefgh", png_chunk(b"eXIf", exif)),
            "interlaced": png(3, 3, 8, 0, b"\0a\0b\0cd\0e\0f\0ghi", interlaced=1),
            "interlaced4": png(2, 2, 4, 3, b"\0\x10\0\x20\0\x31", palette, interlaced=1),
            "profile": png(1, 1, 8, 0, b"\0a",
                           png_chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(100000), 9))),
            "huge": png(65535, 65535, 16, 6, b"\0"),
            "larger-than-huge": png(2**32 - 1, 2**32 - 1, 16, 6, b"\0"),
            "short": png(100, 100, 8, 2, b"\0abc"),
    }.items():
        put("png", name, content)


def riff(*chunks):
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_seeds():
    # images of a few pixels, by libwebp's encoder
    lossy = bytes.fromhex(
        "b001009d012a050003000900ac25b0027400f46d1ba000cc7b38ef7e990c72f4e0cb0128760ec4980549f692"
        "56533f539793f63bb3be0000")
    lossless = bytes.fromhex(
        "2f038000005fa018b6150ae02d1fcd530a2d81da4790c8cf4651db361080d22895a2299ae11a83b1b8de93a2"
        "4852236e30811578e11f0b78c83b35ff11d4c5d3f7cd0f76821e9b00b3475385cce2b14010402213500e538c"
        "b3c5a811fd0f7933")
    palette = bytes.fromhex(
        "2f08000200173064433664f31f780702010ad9e28c7b569b10d1ff1ea4eeb4700000")
    plane = bytes.fromhex("10ec8e8e8e5decec055d058e05")
    below = bytes.fromhex(
        "b001009d012a030004000cc0ce25a802ec00f46c1c0000f5d16e623c70a45e107c57c000")

    def canvas(flags, width, height):
        return (b"VP8X", struct.pack("<I", flags) + struct.pack("<I", width - 1)[:3]
                + struct.pack("<I", height - 1)[:3])

    frame = (struct.pack("<I", 1)[:3] + bytes(3) + struct.pack("<I", 4)[:3]
             + struct.pack("<I", 2)[:3] + bytes(4) + b"VP8 " + struct.pack("<I", len(lossy)) + lossy)
    for name, content in {
            "lossy": riff((b"VP8 ", lossy)),
            "lossless": riff((b"VP8L", lossless)),
            "lossless-palette": riff((b"VP8L", palette)),
            "alpha": riff(canvas(16, 3, 4), (b"ALPH", plane), (b"VP8 ", below)),
            "exif": riff(canvas(8, 5, 3), (b"VP8 ", lossy), (b"EXIF", b"Exif\0\0MM\0*\0\0\0\x08")),
            "animated": riff(canvas(2, 9, 9), (b"ANIM", bytes(6)), (b"ANMF", frame)),
            "outside": riff(canvas(2, 3, 3), (b"ANMF", frame)),
            "other-canvas": riff(canvas(0, 2**24, 2**24), (b"VP8 ", lossy)),
            "sets": riff((b"VP8L", bytes.fromhex("2f3fc00f00c0") + b"\xff" * 60)),
            "cut": riff((b"VP8 ", lossy))[:50],
    }.items():
        put("webp", name, content)


def main():
    for folder in SEEDS.glob("*"):
        for file in folder.iterdir():
            # JPEG files need an encoder: small ones of each kind by libjpeg are kept as they are
            if folder.name != "jpeg" and not file.name.startswith("found-"):
                file.unlink()
    npy_seeds()
    npz_seeds()
    idx_seeds()
    fixed_seeds()
    safetensors_seeds()
    line_seeds()
    token_seeds()
    number_seeds()
    cache_seeds()
    pipeline_seeds()
    guess_seeds()
    png_seeds()
    webp_seeds()


if __name__ == "__main__":
    main()
