"""Two readers, one meaning: what cairn accepts, Python's own parsers read alike.

Random files, right and wrong (mutations.py), go through cairn (`cairn_probe read`, many files a process) and through
`zipfile`, `pickletools` and `pickle`, `json`, and the real `safetensors` package. Whatever cairn accepts, the other
must accept with the same names, places, sizes, opcodes and values. For safetensors the sets of accepted files are
the same too, but for a written list (STRICTER).

CAIRN_SEED repeats a run; CAIRN_DIFFERENTIAL is the number of files of the slow test, over all formats.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import random
import struct
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mutations
import pytest
import safetensors
from programs import PROBE, seed

BATCH = 2000

Answer = dict  # a line of `cairn_probe read`


class Differs(Exception):
    """The two readers do not agree."""


def same(ours: object, theirs: object) -> None:
    if ours != theirs:
        raise Differs(f"cairn: {ours!r}\nother: {theirs!r}")


# --- the other readers: each is given a file that cairn accepted ---------------------------------------


def like_zipfile(data: bytes, ours: Answer) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = []
        for info in archive.infolist():
            name, extra = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30])
            place = info.header_offset + 30 + name + extra
            deflated = info.compress_type == zipfile.ZIP_DEFLATED
            found.append([info.filename, place, info.file_size, info.compress_size, info.CRC, deflated])
            if info.CRC != 0 or info.file_size == 0:
                content = archive.read(info)
                same(len(content), info.file_size)
                if not deflated:
                    same(data[place : place + info.file_size], content)
    same(ours["entries"], found)


class NoClasses(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise LookupError

    def persistent_load(self, pid: object) -> object:
        raise LookupError


def escaped(shown: str) -> str:
    """Characters that no version of Unicode known to this Python has, as its repr() shows them; cairn prints them."""
    return "".join(c if c < "\x80" or c.isprintable() else repr(c)[1:-1] for c in shown)


def two_lines(file: io.BytesIO) -> str:
    """A GLOBAL's names as pickle reads them: pickletools unescapes them, and wants ASCII."""
    lines = [file.readline(), file.readline()]
    if not lines[1].endswith(b"\n"):
        raise ValueError("a name without an end")
    return " ".join(line[:-1].decode() for line in lines)


pickletools.stringnl_noescape_pair.reader = two_lines


def like_pickle(data: bytes, ours: Answer) -> None:
    ops = [[op.name, at] for op, _, at in pickletools.genops(data)]
    same(ours["at"], ops)
    same(ops[-1], ["STOP", len(data) - 1])
    if ours["value"] is None:
        return
    try:
        value = NoClasses(io.BytesIO(data), encoding="utf-8").load()
    except LookupError:
        return  # a class that both know by another way
    same(escaped(ours["value"]), repr(value))


def unique(pairs: list[tuple[str, object]]) -> dict:
    if len(dict(pairs)) != len(pairs):
        raise Differs(f"a name twice: {pairs!r}")
    return dict(pairs)


def like_json(data: bytes, ours: Answer) -> None:
    json.loads(data.decode(), object_pairs_hook=unique)


def like_index(data: bytes, ours: Answer) -> None:
    value = json.loads(data.decode(), object_pairs_hook=unique)
    same(ours["weight_map"], [list(pair) for pair in value["weight_map"].items()])
    metadata = value.get("metadata")
    size = metadata.get("total_size", 0) if isinstance(metadata, dict) else 0
    same(ours["total_size"], size)


def like_sharding(data: bytes, ours: Answer) -> None:
    value = json.loads(data.decode())
    rows = [[name, row["saved_offsets"]] for name, row in value.items()]
    same(ours["offsets"], sorted(rows, key=lambda row: row[0].encode()))


def like_safetensors(data: bytes, ours: Answer) -> None:
    theirs = {name: row for name, row in safetensors.deserialize(data)}
    same(sorted(row[0] for row in ours["tensors"]), sorted(theirs))
    for name, dtype, shape, begin, end in ours["tensors"]:
        row = theirs[name]
        same([dtype, shape], [row["dtype"], list(row["shape"])])
        same(data[begin:end], bytes(row["data"]))


# Files that the safetensors package reads and cairn refuses on purpose: two readers could see them differently
# (a name twice, a field nobody knows, space before the brace), or a limit.
STRICTER = ("twice", "has an unknown key", "does not start with '{'", "(limit)")


def accepted_by_package(data: bytes) -> bool:
    try:
        safetensors.deserialize(data)
    except (safetensors.SafetensorError, ValueError):
        return False
    return True


KINDS: dict[str, tuple[str, Callable[[random.Random], bytes], Callable[[bytes, Answer], None]]] = {
    "zip": ("z", mutations.zip_file, like_zipfile),
    "pickle": ("p", mutations.pickle_file, like_pickle),
    "json": ("j", mutations.json_file, like_json),
    "index": ("i", mutations.index_file, like_index),
    "sharding": ("h", mutations.sharding_file, like_sharding),
    "safetensors": ("s", mutations.safetensors_file, like_safetensors),
}


def read_by_cairn(letter: str, files: list[bytes]) -> list[Answer]:
    frames = b"".join(letter.encode() + struct.pack("<I", len(data)) + data for data in files)
    done = subprocess.run([PROBE, "read"], input=frames, capture_output=True, timeout=600)
    lines = done.stdout.splitlines()
    last = files[len(lines)] if len(lines) < len(files) else b""
    assert done.returncode == 0 and not last, f"cairn_probe died of {last!r}\n{done.stderr[-2000:]!r}"
    return [json.loads(line) for line in lines]


def judge(kind: str, data: bytes, ours: Answer) -> str:
    """How the two readers see one file; raises Differs."""
    if "error" not in ours:
        try:
            KINDS[kind][2](data, ours)
        except Differs:
            raise
        except Exception as e:
            raise Differs(f"cairn accepts it, the other says {type(e).__name__}: {e}") from e
        return "accepted"
    if ours["error"] == "internal":
        raise Differs(ours["message"])
    if kind == "safetensors" and accepted_by_package(data):
        if not any(reason in ours["message"] for reason in STRICTER):
            raise Differs(f"the package accepts it, cairn says {ours['message']}")
        return "stricter"
    return "refused"


def compare(kind: str, count: int, chosen: int, keep: Path) -> Counter:
    letter, make, _ = KINDS[kind]
    counts: Counter = Counter()
    rng = random.Random(f"{chosen} {kind}")
    for first in range(0, count, BATCH):
        files = [make(rng) for _ in range(min(BATCH, count - first))]
        for i, (data, ours) in enumerate(zip(files, read_by_cairn(letter, files), strict=True)):
            try:
                counts[judge(kind, data, ours)] += 1
            except Differs as e:
                (keep / "input").write_bytes(data)
                pytest.fail(f"{kind} file {first + i} of seed {chosen} ({keep / 'input'}): {e}\n{data!r}")
    return counts


def run(kind: str, count: int, keep: Path) -> None:
    counts = compare(kind, count, seed(), keep)
    print(f"{count} {kind} files: {dict(counts)}")
    assert counts["accepted"] >= count // 8, "too few files are accepted to prove much"
    assert counts["refused"] >= count // 8, "too few files are refused to prove much"


@pytest.mark.parametrize("kind", KINDS)
def test_4000_random_files_mean_the_same_to_two_readers(kind: str, tmp_path: Path) -> None:
    run(kind, 4000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_random_files_mean_the_same_to_two_readers(kind: str, tmp_path: Path) -> None:
    run(kind, int(os.environ.get("CAIRN_DIFFERENTIAL", 1_000_000)) // len(KINDS), tmp_path)


@pytest.mark.parametrize("name", [b"a\\", b"a\\xg", b"a\\n", "\u00e9".encode()])
def test_a_name_that_only_pickletools_refuses_is_no_difference(name: bytes) -> None:
    data = b"\x80\x02c" + name + b"\nb\n."
    [answer] = read_by_cairn("p", [data])
    assert judge("pickle", data, answer) == "accepted"


def test_a_reader_that_differs_is_noticed() -> None:
    """Answers that are wrong in one place."""
    rng = random.Random(7)
    wrongs = {
        "zip": lambda a: a["entries"][0].__setitem__(1, a["entries"][0][1] + 1),
        "pickle": lambda a: a["at"][-1].__setitem__(1, 0),
        "index": lambda a: a.update(total_size=a["total_size"] + 1),
        "sharding": lambda a: a["offsets"].append(["x", [1]]),
        "safetensors": lambda a: a["tensors"].append(["x", "F32", [], 0, 4]),
    }
    for kind, wrong in wrongs.items():
        letter, make, _ = KINDS[kind]
        files = [make(rng) for _ in range(50)]
        pairs = [(d, a) for d, a in zip(files, read_by_cairn(letter, files), strict=True) if "error" not in a]
        data, answer = pairs[0]
        judge(kind, data, answer)
        wrong(answer)
        with pytest.raises(Differs):
            judge(kind, data, answer)
    with pytest.raises(Differs):
        judge("json", b'{"a": 1, "a": 2}', {})
