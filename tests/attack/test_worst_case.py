"""The largest files of the smallest parts: time stays linear in the input, memory within 16 MiB + 32 x its size.

Each case is a file of many tiny pieces, the shape that costs a parser most for its bytes, or one that names a part of
itself again and again (unfolding.py). Short: 4 MB each. Slow: a safetensors header as long as the limit allows, 100 MB,
and CAIRN_WORST_METADATA bytes of .metadata (64 MiB). Processor time is measured, so that a busy machine does not matter;
rates are printed, and may not fall under FLOOR.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import assemble
import pytest
import unfolding
from programs import PROBE

FLOOR = 10e6  # bytes a second, for the worst of them on a slow core
SHORT, HEADER = 4_000_000, 99_999_000


def header(body: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(body)) + body + data


def rows(size: int, row: bytes) -> bytes:
    """Rows that differ in their number, up to a hundred bytes short of the size."""
    made, total = [], 0
    while total < size - 100:
        made.append(row % len(made))
        total += len(made[-1]) + 1
    return b",".join(made)


def tensors(size: int) -> bytes:
    return header(b"{" + rows(size, b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}') + b"}")


def metadata_keys(size: int) -> bytes:
    return header(b'{"__metadata__":{' + rows(size, b'"%x":""') + b"}}")


def spaces(size: int) -> bytes:
    return header(b"{" + b" " * (size - 2) + b"}")


def escapes(size: int) -> bytes:
    return header(b'{"__metadata__":{"a":"' + b"\\u0041" * ((size - 30) // 6) + b'"}}')


def pickled(op: bytes, size: int) -> bytes:
    """A list of that instruction, in batches as CPython writes them, where a planner may put what it likes."""
    batch = b"(" + op * 1000 + b"e"
    body = assemble.EMPTY_LIST + batch * (size // len(batch))
    return assemble.metadata(planner=assemble.dict_of((assemble.text("w"), body)))


def index(size: int) -> bytes:
    made = [b'"%x":"a"' % i for i in range(size // 12)]
    return b'{"weight_map":{' + b",".join(made) + b"}}"


# name -> (parser, maker, is its size that of a header)
CASES: dict[str, tuple[str, Callable[[int], bytes], bool]] = {
    "tensors": ("safetensors", tensors, True),
    "metadata-keys": ("safetensors", metadata_keys, True),
    "spaces": ("safetensors", spaces, True),
    "escapes": ("safetensors", escapes, True),
    "index": ("index", index, True),
    "none": ("metadata", lambda size: pickled(b"N", size), False),
    "lists": ("metadata", lambda size: pickled(b"]", size), False),
    "dicts": ("metadata", lambda size: pickled(b"}", size), False),
    "tuples": ("metadata", lambda size: pickled(b")", size), False),
    "pairs": ("metadata", lambda size: pickled(b"K\1\x85", size), False),
    "memo": ("metadata", lambda size: pickled(b"N\x94", size), False),
    "fetches": ("metadata", lambda size: pickled(b"]\x94h\0a", size), False),
    "strings": ("metadata", lambda size: pickled(b"\x8c\0", size), False),
    "names": ("metadata", lambda size: pickled(b"\x8c\1a\x94", size), False),
    "bytes": ("metadata", lambda size: pickled(b"C\0", size), False),
    "numbers": ("metadata", lambda size: pickled(b"\x8a\x08" + b"\xff" * 7 + b"\x7f", size), False),
    **{name: (parser, make, False) for name, (parser, make) in unfolding.CASES.items()},
}


def read(name: str, size: int, folder: Path) -> dict:
    parser, make, _ = CASES[name]
    file = folder / "worst"
    file.write_bytes(make(size))
    done = subprocess.run([PROBE, "time", parser, file], capture_output=True, text=True, timeout=600)
    file.unlink()
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    rate = row["bytes"] / max(row["cpu_ms"], 0.1) * 1e3
    memory = row["peak_kib"] * 1024
    print(f"{name}: {row['bytes'] / 1e6:.0f} MB {row['verdict']}, {rate / 1e6:.0f} MB/s, {memory / row['bytes']:.1f} x memory")
    assert row["verdict"] != "internal"
    assert memory <= (16 << 20) + 32 * row["bytes"]
    assert rate >= FLOOR
    return row


@pytest.mark.parametrize("name", CASES)
def test_many_small_parts_cost_little(name: str, tmp_path: Path) -> None:
    read(name, SHORT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_largest_files_that_are_allowed_cost_no_more(name: str, tmp_path: Path) -> None:
    size = HEADER if CASES[name][2] else int(os.environ.get("CAIRN_WORST_METADATA", 64 << 20))
    small = read(name, size // 4, tmp_path)
    large = read(name, size, tmp_path)
    # In the parser: what the kernel needs to find memory is the machine's, and no measure of it.
    assert large["user_ms"] <= 8 * small["user_ms"] + 50, "four times the bytes take more than eight times as long"
