#!/usr/bin/env python3
"""cairn.torch against torch.distributed.checkpoint, in one run: save, load, many small tensors, the GIL.

Each measurement is a process of its own (or one per rank, over gloo), the best of three. The rows "engine" say
how much of the C++ engine's own rate comes through Python; they need the program save_load. On a machine with
a GPU the state lies there too (rows torch.cuda.*).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CAIRN_BENCH_BIN", ROOT / "build" / "release" / "bench")) / "save_load"
BYTES = int(os.environ.get("CAIRN_BENCH_BYTES", 2 << 30))
SMALL = 20_000
STOCK_SMALL = 4_000
PIECE = 32 << 20
MANY_CORES = 12
ROUNDS = 5  # of the loop beside a save; the median counts


# --- in the processes that measure ---


def dcp_of(side: str) -> Any:
    if side == "stock":
        import torch.distributed.checkpoint as dcp
    else:
        import cairn.torch as dcp
    return dcp


def best(before: Callable[[], Any], work: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        before()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def forget(where: str) -> None:
    """Out of the page cache, as far as the file system can."""
    for path in Path(where).iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def measure_rates(side: str, where: str, count: int, size: int, device: str) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    dcp = dcp_of(side)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = range(rank * count // ranks, (rank + 1) * count // ranks)
    state = {"model": {f"w{i}": torch.rand(size // 4, device=device) for i in mine}}

    def together() -> None:
        if device != "cpu":
            torch.cuda.synchronize()
        if ranks > 1:
            dist.barrier()

    def remove() -> None:
        if rank == 0:
            shutil.rmtree(where, ignore_errors=True)
        together()

    def drop() -> None:
        if rank == 0:
            forget(where)
        together()

    def finished(work: Callable[[], Any]) -> Callable[[], None]:
        return lambda: (work(), together())

    save = best(remove, finished(lambda: dcp.save(state, checkpoint_id=where)))
    load = best(drop, finished(lambda: dcp.load(state, checkpoint_id=where)))
    found = {"save": save, "load": load}
    if side == "cairn":
        found["overhead"] = python_overhead(dcp, state, where)
    return found


def python_overhead(dcp: Any, state: Any, where: str) -> float:
    """Seconds of a save that are not the engine's."""
    from cairn import _engine

    engine, inside = _engine.save, []

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return engine(*arguments)
        finally:
            inside.append(time.perf_counter() - start)

    _engine.save = timed
    outside = []
    for _ in range(3):
        start = time.perf_counter()
        dcp.save(state, checkpoint_id=where)
        outside.append(time.perf_counter() - start - inside[-1])
    _engine.save = engine
    return min(outside)


def measure_counter(side: str, where: str, size: int) -> dict[str, float]:
    """How fast a loop in pure Python counts, alone and beside a save in the background."""
    import torch

    dcp = dcp_of(side)
    state = {f"w{i}": torch.rand(PIECE // 4) for i in range(size // PIECE)}

    def count_while(busy: Callable[[], bool], least: float) -> float:
        counted, start = 0, time.perf_counter()
        while busy() or time.perf_counter() - start < least:
            for _ in range(10_000):
                counted += 1
        return counted / (time.perf_counter() - start)

    dcp.async_save(state, checkpoint_id=where).result()  # memory for the snapshot is there
    rounds = []
    alone = count_while(lambda: False, 0.5)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        saved = dcp.async_save(state, checkpoint_id=where)
        stall = time.perf_counter() - start
        beside = count_while(lambda: not saved.done(), 0.0)
        done = time.perf_counter() - start
        saved.result()
        before, alone = alone, count_while(lambda: False, 0.5)  # a machine's clock wanders
        rounds.append({"ratio": 2 * beside / (before + alone), "stall": stall, "done": done})
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def worker(arguments: list[str]) -> None:
    import warnings

    warnings.simplefilter("ignore")
    what, *rest = arguments
    if what == "counter":
        found = measure_counter(rest[0], rest[1], int(rest[2]))
    else:
        side, where, count, size, device, ranks, rank, store = rest
        if int(ranks) > 1:
            import torch.distributed as dist

            dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(ranks))
        found = measure_rates(side, where, int(count), int(size), device)
        if int(rank) > 0:
            return
    print(json.dumps(found))


# --- in the process that asks ---


def run(*arguments: Any) -> dict[str, float]:
    command = [sys.executable, __file__, "worker", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rates(side: str, where: Path, count: int, size: int, ranks: int = 1, device: str = "cpu") -> dict[str, float]:
    with tempfile.TemporaryDirectory() as meeting:
        common = [side, where, count, size, device, ranks]
        others = [
            subprocess.Popen([sys.executable, __file__, "worker", "rates", *map(str, [*common, rank, f"{meeting}/s"])])
            for rank in range(1, ranks)
        ]
        found = run("rates", *common, 0, f"{meeting}/s")
        for other in others:
            other.wait()
    shutil.rmtree(where)
    return found


def emit(name: str, **row: Any) -> None:
    print(json.dumps({"name": name, **row}), flush=True)


def emit_rates(place: str, directory: Path, ranks: int, engine: dict[str, float]) -> None:
    gb, count = BYTES / 1e9, BYTES // PIECE
    many = (os.cpu_count() or 1) >= MANY_CORES
    ours = rates("cairn", directory / "cairn", count, PIECE, ranks)
    theirs = rates("stock", directory / "stock", count, PIECE, ranks)
    for what in ("save", "load"):
        name = f"torch.{what}.{place}_{ranks}"
        row = {"cairn": gb / ours[what], "unit": "GB/s", "stock": gb / theirs[what]}
        target = {} if place != "tmpfs" else {"target": 10 if many else 2.5 if what == "save" else 4}
        emit(name, **row, ratio=theirs[what] / ours[what], **target, note=f"of stock, {ranks} rank(s)")
        if ranks == 1 and what in engine:
            emit(f"{name}_engine", **row, limit=gb / engine[what], ratio=engine[what] / ours[what], target=0.9,
                 note="of the C++ engine's own rate")


def engine_rates(directory: Path) -> dict[str, float]:
    if not PROGRAM.exists():
        return {}
    found = {}
    for what in ("save", "load"):
        out = subprocess.run([PROGRAM, what, directory, str(BYTES)], check=True, capture_output=True, text=True)
        found[what] = json.loads(out.stdout)["seconds"]
    return found


def small(directory: Path) -> None:
    ours = rates("cairn", directory / "small", SMALL, 4096)
    theirs = rates("stock", directory / "small-stock", STOCK_SMALL, 4096)
    for what in ("save", "load"):
        each, stock = 1e6 * ours[what] / SMALL, 1e6 * theirs[what] / STOCK_SMALL
        emit(f"torch.{what}.small", cairn=each, unit="us", stock=stock, ratio=stock / each, target=20,
             note="for each of 20,000 tensors of 4 KiB")
    emit("torch.overhead", cairn=1e6 * ours["overhead"] / SMALL, unit="us", target=5,
         note="Python's part of a native save, for each tensor")


def counter(directory: Path) -> None:
    ours = run("counter", "cairn", directory / "counter", 2 * BYTES)
    theirs = run("counter", "stock", directory / "counter-stock", 2 * BYTES)
    emit("torch.counter", cairn=ours["ratio"], unit="of its rate", stock=theirs["ratio"], target=0.95, better="higher",
         note="what a loop in Python keeps while a save runs in the background")
    emit("torch.stall", cairn=1e3 * ours["stall"], unit="ms", stock=1e3 * theirs["stall"],
         note="async_save, call to return, memory for the snapshot being there")


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2:])
        return 0
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    if not ("torch".startswith(only) or only.startswith("torch")):
        return 0
    import torch

    places = {"tmpfs": Path("/dev/shm"), "disk": Path(os.environ.get("CAIRN_BENCH_DISK", ROOT / "build"))}
    for place, parent in places.items():
        with tempfile.TemporaryDirectory(dir=parent, prefix="cairn-bench-") as name:
            directory = Path(name)
            print(f"torch_face: {BYTES >> 20} MiB on {place}", flush=True)
            engine = engine_rates(directory)
            for ranks in (1, 2):
                emit_rates(place, directory, ranks, engine)
            if torch.cuda.is_available():
                ours = rates("cairn", directory / "cairn", BYTES // PIECE, PIECE, device="cuda")
                theirs = rates("stock", directory / "stock", BYTES // PIECE, PIECE, device="cuda")
                for what in ("save", "load"):
                    emit(f"torch.cuda.{what}.{place}", cairn=BYTES / 1e9 / ours[what], unit="GB/s",
                         stock=BYTES / 1e9 / theirs[what], ratio=theirs[what] / ours[what], note="of stock")
            if place == "tmpfs":
                small(directory)
                counter(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
