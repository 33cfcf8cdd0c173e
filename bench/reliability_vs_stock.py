#!/usr/bin/env python3
"""What stock PyTorch and cairn do with the same accidents, side by side, as one table.

    .venv/bin/python bench/reliability_vs_stock.py [--flips 400] [--saves 10] [--kills 100] [--seed 1] [--json]

flips   One bit of a data file is turned over, then the checkpoint is loaded: was it noticed, did the load give
        wrong numbers without a word, or did the bit not matter (padding)?
saves   Two threads write, and one value cannot be written: did the save say so, or report success with entries
        missing?
kills   A process that overwrites a checkpoint is killed at a random moment: is the old or the new one there, whole,
        or neither?

Both write to memory (/dev/shm), with the same calls: `save(state, checkpoint_id=...)` and `load(...)`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed.checkpoint as stock

import cairn.torch as cairn

FACES: dict[str, ModuleType] = {"stock": stock, "cairn": cairn}
Counts = dict[str, int]


def state_of(version: int, elements: int = 20_000) -> dict[str, Any]:
    """Tensors and an object that all say which version they are of."""
    tensors = {f"w{i}": torch.full((elements,), float(version)) for i in range(8)}
    return {**tensors, "step": version}


def read(face: ModuleType, path: Path) -> dict[str, Any]:
    state = state_of(-1)
    face.load(state, checkpoint_id=str(path))
    return state


def version_in(face: ModuleType, path: Path) -> int | None:
    """The version of a checkpoint all of whose values are of one; None when they are not."""
    state = read(face, path)
    version = state["step"]
    same = all(bool((value == version).all()) for name, value in state.items() if name != "step")
    return version if same else None


def flips(face: ModuleType, root: Path, count: int, rng: random.Random) -> Counts:
    path = root / "flips"
    face.save(state_of(1), checkpoint_id=str(path))
    files = sorted(path.glob("*.distcp"))
    counts: Counter[str] = Counter()
    for _ in range(count):
        file = rng.choice(files)
        whole = file.read_bytes()
        at, bit = rng.randrange(len(whole)), rng.randrange(8)
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        file.write_bytes(changed)
        try:
            counts["did not matter" if version_in(face, path) == 1 else "loaded wrong, silently"] += 1
        except BaseException:  # noticed; CheckpointException is one, outside Exception
            counts["noticed"] += 1
        file.write_bytes(whole)
    return counts


class Unwritable:
    """A value whose pickling fails, as that of an open file or a lock does."""

    def __reduce__(self) -> Any:
        raise OSError("this value cannot be written")


def writer_errors(face: ModuleType, root: Path, count: int) -> Counts:
    counts: Counter[str] = Counter()
    for i in range(count):
        path = root / f"errors{i}"
        state = {"bad": Unwritable(), **state_of(1)}
        try:
            face.save(state, storage_writer=face.FileSystemWriter(str(path), thread_count=2))
            counts["reported success"] += 1
        except BaseException:  # CheckpointException is one, outside Exception
            counts["said so"] += 1
    return counts


def killed_save(face: ModuleType, path: Path, version: int, after: float) -> None:
    """A process of its own saves, and dies `after` seconds into it, if it takes as long."""
    child = os.fork()
    if child == 0:
        try:
            face.save(state_of(version), checkpoint_id=str(path))
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def length_of_a_save(face: ModuleType, path: Path) -> float:
    times = []
    for version in range(1, 6):
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            face.save(state_of(version), checkpoint_id=str(path))
            os._exit(0)
        os.waitpid(child, 0)
        times.append(time.perf_counter() - start)
    return sorted(times)[2]


def kills(face: ModuleType, root: Path, count: int, rng: random.Random) -> Counts:
    path = root / "kills"
    span = length_of_a_save(face, path)
    counts: Counter[str] = Counter()
    at = 5
    for version in range(10, 10 + count):
        killed_save(face, path, version, rng.uniform(0, span))
        try:
            found = version_in(face, path)
        except BaseException:  # CheckpointException is one, outside Exception
            found = None
        if found in (at, version):
            counts["old one whole" if found == at else "new one whole"] += 1
            at = found
        else:
            counts["neither"] += 1
            shutil.rmtree(path)
            face.save(state_of(at), checkpoint_id=str(path))
    return counts


def measure(face: ModuleType, args: argparse.Namespace) -> dict[str, Counts]:
    root = Path(tempfile.mkdtemp(prefix="cairn-reliability-", dir="/dev/shm"))
    try:
        tests: dict[str, Callable[[], Counts]] = {
            "kills": lambda: kills(face, root, args.kills, random.Random(args.seed)),
            "flips": lambda: flips(face, root, args.flips, random.Random(args.seed)),
            "saves": lambda: writer_errors(face, root, args.saves),
        }
        return {name: test() for name, test in tests.items()}
    finally:
        shutil.rmtree(root)


def table(results: dict[str, dict[str, Counts]]) -> str:
    lines = [f"{'':8}{'outcome':26}" + "".join(f"{face:>8}" for face in results)]
    for test in ("flips", "saves", "kills"):
        outcomes = dict.fromkeys(outcome for counts in results.values() for outcome in counts[test])
        for outcome in outcomes:
            cells = "".join(f"{counts[test].get(outcome, 0):>8}" for counts in results.values())
            lines.append(f"{test:8}{outcome:26}{cells}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("flips", 400), ("saves", 10), ("kills", 100), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="the counts as one JSON object")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    threading.excepthook = lambda _: None  # stock's threads die of what is counted here
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    results = {name: measure(face, args) for name, face in FACES.items()}
    print(json.dumps(results) if args.json else f"PyTorch {torch.__version__}, seed {args.seed}\n{table(results)}")


if __name__ == "__main__":
    main()
