"""Random files of four formats, right and wrong, from a seed: small real ones with something changed.

Each function takes a random.Random and gives the bytes of one file. About half of the files are right, or wrong in a
way that only a strict reader minds; the others have bytes, fields, instructions or words that were changed.
"""

from __future__ import annotations

import json
import pickle
import pickletools
import random
import struct
import zlib

import assemble
from assemble import Record


def bend(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, taken out, put in or copied."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, length = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 4, 8, 20))
        way = rng.randrange(5)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del out[at : at + length]
        elif way == 2:
            out[at:at] = rng.randbytes(length)
        elif way == 3:
            out[at : at + length] = out[rng.randrange(len(out) + 1) :][:length]
        elif at < len(out):
            out[at] = rng.choice((0, 1, 0x20, 0x7F, 0x80, 0xFF))
    return bytes(out)


# --- zip ----------------------------------------------------------------------------------------------

NAMES = ["data.pkl", "data/0", "data/1", "version", "byteorder", "a b", "é", "x" * 90, ".data/id", "data/0.", "\u202e"]
ODD_NAMES = [b"archive/../x", b"/x", b"archive/a\\b", b"archive/a\0b", b"other/x", b"archive/\xff", b"archive/\xe9", b""]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zip64_block(*numbers: int) -> bytes:
    return struct.pack("<HH", 1, 8 * len(numbers)) + b"".join(struct.pack("<Q", n) for n in numbers)


def record(rng: random.Random, name: str) -> Record:
    data = rng.randbytes(rng.choice((0, 1, 16, 100))) if rng.random() < 0.7 else b"abc" * 40
    fields: dict = {"align": rng.choice((1, 64, 64)), "described": rng.random() < 0.6}
    local, central = {}, {}
    if rng.random() < 0.15:
        fields.update(method=8, stored=deflated(data))
    if rng.random() < 0.1:
        fields["crc"] = 0
    if rng.random() < 0.1:  # a time, as others write it
        central["extra"] = local["extra"] = b"UT\5\0\1" + rng.randbytes(4)
    if rng.random() < 0.1:
        stored = fields.get("stored", data)
        central.update(size=0xFFFFFFFF, packed=0xFFFFFFFF, extra=zip64_block(len(data), len(stored)))
    for side in (local, central):
        if rng.random() < 0.05:
            key = rng.choice(("flags", "method", "crc", "packed", "size", "version"))
            side[key] = rng.choice((0, 1, 8, 20, 45, 63, 64, 0x0800, 0x0808, 0xFFFF))
        if rng.random() < 0.02:
            side["name"] = rng.choice(ODD_NAMES)
    made = Record(name, data, local=local, central=central, **fields)
    if rng.random() < 0.05:
        made.name = made.name.replace(b"archive", rng.choice((b"other", b"Archive")))
    if not made.name.isascii() and rng.random() < 0.5:
        made.local.setdefault("flags", 0x0808 if made.described else 0x0800)
    return made


def zip_file(rng: random.Random) -> bytes:
    names = rng.sample(NAMES, rng.randint(1, 5))
    if rng.random() < 0.04:
        names.append(names[0])
    options: dict = {"zip64": rng.random() < 0.5}
    for part, keys in (("end", ("here", "total", "length", "start")), ("end64", ("here", "total", "size"))):
        if rng.random() < 0.04:
            options[part] = {rng.choice(keys): rng.choice((0, 1, 2, 44, 45, 0xFFFF))}
    if rng.random() < 0.06:
        key = rng.choice(("prefix", "gap", "comment", "tail"))
        options[key] = rng.randbytes(rng.randint(1, 8))
    data = assemble.archive([record(rng, name) for name in names], **options)
    return bend(rng, data) if rng.random() < 0.25 else data


# --- pickle -------------------------------------------------------------------------------------------


def plain(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(8 if depth > 3 else 12)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((0, 1, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, 2**63, -(2**63), 2**70, -(2**100)))
    if kind == 2:
        return rng.choice((0.0, -0.0, 1.5, 1e300, -1e-300, 5e-324, float("inf"), 0.1, 1e16, 123456789.125))
    if kind in (3, 4):
        return rng.choice(("", "w", "é", "日本", "'", '"', "\n\\", "\x00\x7f", "a" * 300, "\U0001f600", "\u2028"))
    if kind == 5:
        return rng.choice((b"", b"\0\xff", b"'", b"x" * 300))
    if kind in (6, 7):
        return rng.randint(-300, 70000)
    items = [plain(rng, depth + 1) for _ in range(rng.randint(0, 5))]
    if kind == 8:
        return items
    if kind == 9:
        return tuple(items)
    if kind == 10 and items:
        return [items[0], items[0], items]  # shared
    return {rng.choice(("a", "b", "lr", 0, 1, "é")): item for item in items}


def instructions(program: bytes) -> list[bytes]:
    places = [at for _, _, at in pickletools.genops(program)] + [len(program)]
    return [program[a:b] for a, b in zip(places, places[1:])]


WORDS = [b"K\1", b"M\1\1", b"J\xff\xff\xff\xff", b"N", b"\x88", b"\x89", b"]", b"}", b")", b"(", b"a", b"e", b"s", b"u",
         b"t", b"\x85", b"\x86", b"\x87", b"\x8c\1w", b"X\1\0\0\0w", b"\x8a\1\xff", b"\x8a\0", b"G" + bytes(8), b"q\0",
         b"h\0", b"\x94", b"0", b"2", b"\x8f", b"\x90", b"\x95" + struct.pack("<Q", 3), b"C\1x", b"U\1x", b"\x8c\1\xff",
         b"ctorch\nfloat32\n", b"R", b"b", b"Q", b"I1\n", b"\x8a\x09" + bytes(8) + b"\x01"]  # fmt: skip


def pickle_file(rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        program = assemble.proto(2) + assemble.rebuild() + assemble.STOP
    else:
        program = pickle.dumps(plain(rng), protocol=rng.randint(2, 5))
    if rng.random() < 0.3:
        return program
    if rng.random() < 0.15:
        return bend(rng, program)
    ops = instructions(program)
    for _ in range(rng.randint(1, 2)):
        at, way = rng.randrange(len(ops)), rng.randrange(5)
        if way == 0:
            ops.insert(at, rng.choice(WORDS))
        elif way == 1 and len(ops) > 1:
            del ops[at]
        elif way == 2:
            other = rng.randrange(len(ops))
            ops[at], ops[other] = ops[other], ops[at]
        elif way == 3:
            ops.insert(at, ops[rng.randrange(len(ops))])
        else:
            ops[at] = rng.choice(WORDS)
    return b"".join(ops)


# --- JSON ---------------------------------------------------------------------------------------------

TOKENS = ["{", "}", "[", "]", ",", ":", '"a"', '"weight_map"', '"metadata"', '"total_size"', "0", "-0", "1.0", "1e3",
          "01", "+1", "1.", ".5", "1E+2", "2e-1", "true", "null", "NaN", "Infinity", "-Infinity", '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"',
          '"\\x"', '"\\/"', "'a'", "//x", " ", "\t", "\n", "\r", "\x0b", "\u00a0", "\ufeff", "\x00", '"\x01"', "9" * 25,
          '"w": "model.safetensors"']  # fmt: skip


def words_of(text: str) -> list[str]:
    """Cut where JSON has its own characters, so that whole words can be changed."""
    out, word, quoted = [], "", False
    for c in text:
        if c == '"' and not word.endswith("\\"):
            quoted = not quoted
        if not quoted and c in "{}[],: \n":
            out += [word, c] if word else [c]
            word = ""
        else:
            word += c
    return [*out, word] if word else out


def bend_json(rng: random.Random, text: str) -> str:
    words = words_of(text)
    for _ in range(rng.randint(1, 2)):
        at, way = rng.randrange(len(words) + 1), rng.randrange(4)
        if way == 0:
            words.insert(at, rng.choice(TOKENS))
        elif way == 1:
            del words[at : at + 1]
        elif way == 2:
            words[at : at + 1] = [rng.choice(TOKENS)]
        else:
            words[at:at] = words[rng.randrange(len(words) + 1) :][: rng.choice((1, 2, 4))]
    return "".join(words)


def spelled(rng: random.Random, value: object) -> str:
    separators = rng.choice(((",", ":"), (", ", ": "), (" , ", " : ")))
    return json.dumps(value, indent=rng.choice((None, None, 2)), ensure_ascii=rng.random() < 0.5, separators=separators)


def maybe_bent(rng: random.Random, text: str) -> bytes:
    if rng.random() < 0.5:
        text = bend_json(rng, text)
    data = text.encode("utf-8", "surrogatepass")
    return bend(rng, data) if rng.random() < 0.15 else data


def a_name(rng: random.Random) -> str:
    return rng.choice(("w", "model.embed", "é", '"', "\\", "\n", "\U0001f600", "", "a/b", "layers.%d" % rng.randrange(9)))


def index_file(rng: random.Random) -> bytes:
    files = ("model-00001-of-00002.safetensors", "x/y", "a", "..", "../x", "/x", "é", "a//b")
    weights = {a_name(rng): rng.choice(files[: rng.choice((3, 8))]) for _ in range(rng.randint(0, 4))}
    size = rng.choice((0, 24, 2**40, 2**53, 2**63, 1.5e10, 3.0, 0.5, "24", None))
    value: dict = {"metadata": {"total_size": size, "x": [1, {"y": None}]}, "weight_map": weights}
    if rng.random() < 0.2:
        value.pop(rng.choice(list(value)))
    return maybe_bent(rng, spelled(rng, value))


def sharding_file(rng: random.Random) -> bytes:
    offsets = {a_name(rng): {"saved_offsets": [rng.choice((0, 8, 2**40)) for _ in range(rng.randint(0, 3))]} for _ in range(rng.randint(0, 3))}
    return maybe_bent(rng, spelled(rng, offsets))


def json_file(rng: random.Random) -> bytes:
    def value(depth: int) -> object:
        kind = rng.randrange(6 if depth < 4 else 4)
        if kind < 4:
            return rng.choice((None, True, 0, -1, 1.5, 1e-9, 10**20, a_name(rng)))
        if kind == 4:
            return [value(depth + 1) for _ in range(rng.randint(0, 3))]
        return {a_name(rng): value(depth + 1) for _ in range(rng.randint(0, 3))}

    return maybe_bent(rng, spelled(rng, value(0)))


# --- safetensors --------------------------------------------------------------------------------------

SIZES = {"F32": 4, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F64": 8, "I64": 8, "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "C64": 8}


def safetensors_file(rng: random.Random) -> bytes:
    header: dict = {}
    if rng.random() < 0.3:
        header["__metadata__"] = {a_name(rng): rng.choice(("pt", "", "é")) for _ in range(rng.randint(0, 2))}
    end = 0
    entries = []
    for _ in range(rng.randint(0, 4)):
        dtype = rng.choice(list(SIZES))
        shape = [rng.choice((0, 1, 2, 3)) for _ in range(rng.randint(0, 3))]
        size = SIZES[dtype]
        for dim in shape:
            size *= dim
        entries.append((a_name(rng), {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}))
        end += size
    if rng.random() < 0.3:
        rng.shuffle(entries)
    if rng.random() < 0.1 and entries:
        bad = rng.choice(entries)[1]
        bad[rng.choice(list(bad))] = rng.choice(([0, 1], [0], [1.0], "F99", [-1, 0], [2**64, 2**64], [2**53 + 1, 0], None))
    header.update(entries)
    text = spelled(rng, header)
    if rng.random() < 0.4:
        text = bend_json(rng, text)
    raw = text.encode("utf-8", "surrogatepass") + b" " * rng.choice((0, 0, 3, 7))
    if rng.random() < 0.1:
        raw = bend(rng, raw)
    length = len(raw) + (rng.choice((-1, 1, 2**40, 2**63)) if rng.random() < 0.05 else 0)
    data = rng.randbytes(max(0, end + (rng.choice((-1, 1, 8)) if rng.random() < 0.05 else 0)))
    return struct.pack("<Q", max(0, length)) + raw + data
