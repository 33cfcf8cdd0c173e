"""Hostile checkpoints under the commands that look into them: an answer or a typed error, soon, within bounded memory.

The parsers have let these files in, or may: what is large here comes from what a command makes of them. Memory is
16 MiB + 32 x the input beyond what the command takes for an empty file; processor time has a limit that only work with
the square of the input's size meets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import assemble as a
import pytest
from programs import CLI, command, plain_build_only

SECONDS = 5  # of processor time; the worst of them takes 0.2 s
ITSELF = 8 << 20  # what the command takes for nothing

LONG = "s" * 60_000
Files = dict[str, bytes]


def state(body: bytes) -> Files:
    return {"x.pt": a.torch_file(a.proto(4) + body + a.STOP)}


def batches(parts: list[bytes], end: bytes) -> bytes:
    return b"".join(a.MARK + b"".join(parts[i:i + 1000]) + end for i in range(0, len(parts), 1000))


def long_key() -> Files:
    """40,000 names that all begin with 60,000 letters."""
    inner = a.EMPTY_DICT + batches([a.text(f"{i:x}") + a.NONE for i in range(40_000)], a.SETITEMS)
    return state(a.dict_of((a.text(LONG), inner)))


def deep_lists() -> Files:
    """A long list under 55 others, with a dict at its end that cuts them all."""
    deep = a.EMPTY_LIST + batches([a.NONE] * 300_000, a.APPENDS) + a.EMPTY_DICT + a.APPEND
    for _ in range(55):
        deep = a.EMPTY_LIST + deep + a.APPEND
    return state(a.dict_of((a.text("k"), deep)))


def repeated_tensors() -> Files:
    """150 tensors of 16 MiB that are one byte."""
    tensor = a.rebuild(storage=a.storage_id("ByteStorage", count=16), shape=(16 << 20,), stride=(0,))
    return state(a.dict_of((a.text("a"), a.MARK + tensor + a.MEMOIZE + a.get(0) * 150 + a.TUPLE)))


def endless_tensor() -> Files:
    tensor = a.rebuild(storage=a.storage_id("ByteStorage", count=2 << 20), shape=(1 << 50,), stride=(0,))
    return {"x.pt": a.torch_file(a.proto(2) + tensor + a.STOP, data=bytes(2 << 20))}


def dotted_names() -> Files:
    """Names of 30,000 levels."""
    names = [".".join(["a"] * 30_000) + f".{i}" for i in range(8)]
    return {"x.safetensors": a.safetensors({name: a.entry("U8", (0,), 0, 0) for name in names}, b"")}


def info(**fields: bytes) -> bytes:
    return a.instance(a.FILESYSTEM, "_StorageInfo", a.attributes(
        **{"relative_path": a.text("f"), "offset": a.number(0), "length": a.number(1), **fields}))


def two_lists_of_transforms() -> Files:
    """Items that take turns between two lists of 5,000 names."""
    lists = [a.EMPTY_LIST + batches([a.text(f"{letter}{i}") for i in range(5000)], a.APPENDS) for letter in "ab"]
    rows = [a.index(f"first{i}") + info(transform_descriptors=names) + a.MEMOIZE for i, names in enumerate(lists)]
    rows += [a.index(f"{i:x}") + a.get(i % 2) for i in range(20_000)]
    return {".metadata": a.metadata(storage=a.EMPTY_DICT + batches(rows, a.SETITEMS))}


def many_items_in_one_place() -> Files:
    """40,000 tensors that are one archive of 1 MiB."""
    count = 1 << 18
    pickle = a.proto(2) + a.rebuild(storage=a.storage_id(count=count), shape=(count,)) + a.STOP
    archive = a.torch_file(pickle, data=bytes(4 * count))
    place = a.place("__0_0.distcp", 0, len(archive))
    tensors = [a.text(f"{i:x}") + (a.get(0) if i else a.tensor((count,)) + a.MEMOIZE) for i in range(40_000)]
    rows = [a.index(f"{i:x}", a.size(0), a.number(0)) + (a.get(1) if i else place + a.MEMOIZE) for i in range(40_000)]
    described = a.metadata(state=a.EMPTY_DICT + batches(tensors, a.SETITEMS), planner=a.EMPTY_DICT,
                           storage=a.EMPTY_DICT + batches(rows, a.SETITEMS))
    return {".metadata": described, "__0_0.distcp": archive}


# name -> (files, the command's words before and behind the path, exit status)
CASES: dict[str, tuple[Callable[[], Files], tuple[str, ...], tuple[str, ...], int]] = {
    "long-key": (long_key, ("ls",), (), 1),
    "deep-lists": (deep_lists, ("ls",), (), 1),
    "repeated-tensors": (repeated_tensors, ("show",), ("a",), 1),
    "endless-tensor": (endless_tensor, ("show",), ("(root)",), 1),
    "dotted-names": (dotted_names, ("ls", "--tree"), (), 0),
    "transforms": (two_lists_of_transforms, ("info",), (), 0),
    "one-place": (many_items_in_one_place, ("verify",), (), 1),
}


def run(command: list[str], folder: Path) -> tuple[int, int, str]:
    """Exit status, peak memory, standard error. A signal is a negative status."""
    errors = folder / "errors"
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
               (os.POSIX_SPAWN_OPEN, 2, str(errors), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    child = os.posix_spawn("/bin/sh", ["sh", "-c", f'ulimit -t {SECONDS}; exec "$@"', "sh", *command], os.environ,
                           file_actions=actions)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, errors.read_text()


@plain_build_only("memory and time are those of the sanitizer")
@pytest.mark.parametrize("name", CASES)
def test_a_command_answers_soon_within_bounded_memory(name: str, tmp_path: Path) -> None:
    make, before, behind, expected = CASES[name]
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    files = make()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    only = next(iter(files))
    path = folder / only if len(files) == 1 and only != ".metadata" else folder
    status, peak, errors = run([str(CLI), *before, str(path), *behind], tmp_path)
    assert status == expected, errors
    # A new process begins with the peak of the one that started it.
    inherited = run([str(CLI), "--version"], tmp_path)[1]
    bound = ITSELF + (16 << 20) + 32 * sum(map(len, files.values()))
    assert peak <= max(bound, inherited + (1 << 20)), f"{peak >> 10} KiB"
    if expected == 1 and before[0] != "verify":
        assert "(limit)" in errors


def test_characters_that_turn_a_line_around_are_escaped_in_json(tmp_path: Path) -> None:
    name = "a\u202eb\ufeffc\U000e0041"
    (tmp_path / "x.pt").write_bytes(a.torch_file(a.proto(4) + a.dict_of((a.text(name), a.number(1))) + a.STOP))
    done = command(CLI, "ls", "--json", tmp_path / "x.pt")
    assert done.returncode == 0 and done.stdout.isascii()
    assert json.loads(done.stdout)["objects"][0]["name"] == name
