#!/usr/bin/env python3
"""Every way into a save or load of cairn.torch against the default way, in one run: what code of the caller's costs.

One process on a memory file system. Each round saves and loads every way once, one after another, and the median of the
rounds counts: a busy machine slows all ways alike. `ratio` is the default way's time by this way's, so 1 is as fast;
that of `megatron`'s save is against `async_save` on the default way, which is how torchtitan saves. Rows `ways.small.*`
are microseconds a tensor beyond the default way. `megatron` (planners, a writer of its own in the background) and
`accelerate` (planners and storages that are told) call as those frameworks do.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
import warnings
from typing import Any, Callable

BYTES = int(os.environ.get("CAIRN_BENCH_BYTES", 1 << 30))
LARGE = 64 << 20  # of one tensor
SMALL = 5_000
ROUNDS = 5
WHERE = "/dev/shm/cairn-bench-ways"
TARGETS = {
    "own_planner": 1 / 1.15,
    "derived_writer": 1 / 1.05,
    "fsspec": 0.8,
    "file_per_item": 0.8,
    "hugging_face": 0.9,
    "accelerate": 0.8,
    "megatron": 0.8,
}
MOST_MICROSECONDS = {"hooks": 10.0, "own_planner": 20.0}

Call = Callable[[dict[str, Any], str], None]


def ways() -> dict[str, tuple[Call, Call]]:
    """How each saves and loads; classes are made here, where torch is imported."""
    import cairn.torch as dcp
    from cairn.torch._fsspec_filesystem import FsspecReader, FsspecWriter

    class Saves(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            return super().create_local_plan()

        def resolve_data(self, write_item):
            return super().resolve_data(write_item)

    class Loads(dcp.DefaultLoadPlanner):
        def create_local_plan(self):
            return super().create_local_plan()

        def resolve_tensor(self, read_item):
            return super().resolve_tensor(read_item)

    class Hooks(dcp.DefaultSavePlanner):
        def transform_object(self, write_item, object):
            return super().transform_object(write_item, object)

    class HooksToLoad(dcp.DefaultLoadPlanner):
        def transform_tensor(self, read_item, tensor):
            return super().transform_tensor(read_item, tensor)

    class Writer(dcp.FileSystemWriter):
        pass

    class Reader(dcp.FileSystemReader):
        pass

    def load(state: dict[str, Any], path: str, **how: Any) -> None:
        dcp.load(state, **({"checkpoint_id": path} if "storage_reader" not in how else {}), **how)

    def in_background(state: dict[str, Any], path: str, **how: Any) -> None:
        dcp.async_save(state, **({"checkpoint_id": path} if "storage_writer" not in how else {}), **how).result()

    return {
        "default": (lambda state, path: dcp.save(state, checkpoint_id=path), load),
        "own_planner": (
            lambda state, path: dcp.save(state, checkpoint_id=path, planner=Saves()),
            lambda state, path: load(state, path, planner=Loads()),
        ),
        "hooks": (
            lambda state, path: dcp.save(state, checkpoint_id=path, planner=Hooks()),
            lambda state, path: load(state, path, planner=HooksToLoad()),
        ),
        "derived_writer": (
            lambda state, path: dcp.save(state, storage_writer=Writer(path)),
            lambda state, path: load(state, path, storage_reader=Reader(path)),
        ),
        "fsspec": (
            lambda state, path: dcp.save(state, storage_writer=FsspecWriter(f"file://{path}")),
            lambda state, path: load(state, path, storage_reader=FsspecReader(f"file://{path}")),
        ),
        "file_per_item": (
            lambda state, path: dcp.save(state, storage_writer=dcp.FileSystemWriter(path, single_file_per_rank=False)),
            load,
        ),
        "hugging_face": (
            lambda state, path: dcp.save(
                state, storage_writer=dcp.HuggingFaceStorageWriter(path, save_distributed=True)
            ),
            lambda state, path: load(state, path, storage_reader=dcp.HuggingFaceStorageReader(path)),
        ),
        "default_async": (in_background, load),
        "accelerate": (
            lambda state, path: dcp.save(
                {"model": state}, storage_writer=dcp.FileSystemWriter(path), planner=dcp.DefaultSavePlanner()
            ),
            lambda state, path: load(
                {"model": state}, path, storage_reader=dcp.FileSystemReader(path), planner=dcp.DefaultLoadPlanner()
            ),
        ),
        "megatron": (
            lambda state, path: in_background(state, path, storage_writer=Writer(path), planner=Saves()),
            lambda state, path: load(state, path, storage_reader=Reader(path), planner=Loads()),
        ),
    }


def timed(work: Call, state: dict[str, Any], path: str) -> float:
    start = time.perf_counter()
    work(state, path)
    return time.perf_counter() - start


def medians(state: dict[str, Any], names: list[str]) -> dict[str, dict[str, float]]:
    """Seconds of each way's save (over an earlier one, as in training) and load."""
    known = ways()
    found: dict[str, dict[str, list[float]]] = {name: {"save": [], "load": []} for name in names}
    for number in range(ROUNDS + 1):
        for name in names:
            save, load = known[name]
            path = f"{WHERE}/{name}"
            saving, loading = timed(save, state, path), timed(load, state, path)
            if number > 0:  # the first finds nothing to overwrite
                found[name]["save"].append(saving)
                found[name]["load"].append(loading)
    return {name: {what: statistics.median(times) for what, times in each.items()} for name, each in found.items()}


def row(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def large(torch: Any) -> None:
    state = {f"w{i}": torch.full((LARGE // 4,), float(i)) for i in range(max(1, BYTES // LARGE))}
    seconds = medians(state, ["default", "default_async", *TARGETS])
    size = sum(each.numel() * 4 for each in state.values())
    for what in ("save", "load"):
        default = seconds["default"][what]
        background = seconds["default_async"][what]
        row(name=f"ways.large.default.{what}", cairn=size / default / 1e9, unit="GB/s")
        row(name=f"ways.large.default_async.{what}", cairn=size / background / 1e9, unit="GB/s")
        for name, target in TARGETS.items():
            of = seconds[name][what]
            against = background if (name, what) == ("megatron", "save") else default
            row(name=f"ways.large.{name}.{what}", cairn=size / of / 1e9, unit="GB/s", ratio=against / of, target=target)


def small(torch: Any) -> None:
    state = {f"w{i}": torch.full((16,), float(i)) for i in range(SMALL)}
    seconds = medians(state, ["default", *MOST_MICROSECONDS])
    for what in ("save", "load"):
        default = seconds["default"][what]
        row(name=f"ways.small.default.{what}", cairn=1e6 * default / SMALL, unit="µs/tensor")
        for name, most in MOST_MICROSECONDS.items():
            extra = 1e6 * (seconds[name][what] - default) / SMALL
            row(name=f"ways.small.{name}.{what}", cairn=extra, unit="µs/tensor more", target=most)


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    if not ("ways".startswith(only) or only.startswith("ways")):
        return 0
    try:
        import torch
    except ImportError:
        print("torch_ways: torch is not installed")
        return 0
    warnings.simplefilter("ignore")
    try:
        if "ways.large".startswith(only) or only.startswith("ways.large"):
            large(torch)
        if "ways.small".startswith(only) or only.startswith("ways.small"):
            small(torch)
    finally:
        shutil.rmtree(WHERE, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
