#!/usr/bin/env python3
"""Save and load of one rank, against stock torch.distributed.checkpoint and the machine's raw limit.

Everything is measured on the same files systems in one run: memory (/dev/shm) and the disk that holds the
tree. CAIRN_BENCH_DISK names another directory for the disk. Raw is the same number of bytes with no format:
the best of one to `cores` files, through the page cache or past it, each file made durable. Loads start with
nothing in the page cache. Every time is the best of three, stock's too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CAIRN_BENCH_BIN", ROOT / "build" / "release" / "bench")) / "save_load"
BYTES = int(os.environ.get("CAIRN_BENCH_BYTES", 2 << 30))
SMALL = 100_000
STOCK_SMALL = 4_000  # stock takes a third of a millisecond for each
MANY_CORES = 12  # from here on stock is to be beaten by ten times

STOCK = """
import json, os, shutil, sys, time, warnings
import torch, torch.distributed.checkpoint as dcp
warnings.simplefilter("ignore")
where, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
state = {"model": {f"w{i}": torch.rand(size // 4) for i in range(count)}}
def drop():
    for name in os.listdir(where):
        fd = os.open(os.path.join(where, name), os.O_RDONLY)
        os.fdatasync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
def best(before, work):
    times = []
    for _ in range(3):
        before(); start = time.perf_counter(); work(); times.append(time.perf_counter() - start)
    return min(times)
save = best(lambda: shutil.rmtree(where, ignore_errors=True), lambda: dcp.save(state, checkpoint_id=where))
load = best(drop, lambda: dcp.load(state, checkpoint_id=where))
print(json.dumps({"save": save, "load": load}))
"""


def ours(*args: Any) -> dict[str, float]:
    return json.loads(subprocess.run([PROGRAM, *map(str, args)], check=True, capture_output=True, text=True).stdout)


def stock(where: Path, count: int, size: int) -> dict[str, float]:
    command = [sys.executable, "-c", STOCK, where, count, size]
    return json.loads(subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout)


def emit(name: str, **row: Any) -> None:
    print(json.dumps({"name": name, **row}), flush=True)


def rates(place: str, directory: Path) -> None:
    """The rows of one file system, in GB/s."""
    gb = BYTES / 1e9
    cores = os.cpu_count() or 1
    torch = stock(directory / "stock", BYTES >> 25, 32 << 20)
    shutil.rmtree(directory / "stock")
    limit = 0.9 if place == "disk" else 0.7
    for what in ("save", "load"):
        raw = gb / ours(f"raw-{'write' if what == 'save' else 'read'}", directory / "raw", BYTES)["seconds"]
        rate = gb / ours(what, directory, BYTES)["seconds"]
        row = {"cairn": rate, "unit": "GB/s", "limit": raw, "stock": gb / torch[what]}
        emit(f"{what}.{place}", **row, ratio=rate / raw, target=limit, note="of the raw limit, checksums on")
        if place == "tmpfs":
            times = 10 if cores >= MANY_CORES else 2.5 if what == "save" else 4
            emit(f"{what}.{place}_stock", **row, ratio=rate * torch[what] / gb, target=times, note="of stock")
        plain = gb / ours(what, directory, BYTES, "nosums")["seconds"]
        emit(f"{what}.{place}_nosums", cairn=plain, unit="GB/s", limit=raw, ratio=plain / raw, note="of the raw limit")
        if what == "save":
            ours("save", directory, BYTES)  # with its checksums, for the load


def small(directory: Path) -> None:
    mine = ours("small", directory, SMALL)
    torch = stock(directory / "stock", STOCK_SMALL, 4096)
    for what in ("save", "load"):
        each, theirs = 1e6 * mine[what] / SMALL, 1e6 * torch[what] / STOCK_SMALL
        emit(f"{what}.small", cairn=each, unit="us", stock=theirs, ratio=theirs / each, target=10,
             note="for each of 100,000 tensors of 4 KiB")


def memory(directory: Path) -> None:
    for name, args in (("4gib", ("4",)), ("one_8gib", ("8", "one"))):
        beyond = ours("memory", directory, *args)
        shutil.rmtree(directory / "big")
        for what, mib in beyond.items():
            emit(f"memory.{what}_{name}", cairn=mib, unit="MiB", target=320, note="beyond the state; budget 256 MiB")
    growth = ours("flat", directory)["growth_kib"]
    emit("memory.flat", cairn=growth, unit="KiB", target=1024, note="more after 50 saves than after 5")


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")

    def wanted(prefix: str) -> bool:
        return prefix.startswith(only) or only.startswith(prefix)

    disk = os.environ.get("CAIRN_BENCH_DISK", ROOT / "build")
    places = {"tmpfs": Path("/dev/shm"), "disk": Path(disk)}
    for place, parent in places.items():
        with tempfile.TemporaryDirectory(dir=parent, prefix="cairn-bench-") as name:
            directory = Path(name)
            if any(wanted(f"{what}.{place}") for what in ("save", "load")):
                print(f"save_load: {BYTES >> 20} MiB on {place}", flush=True)
                rates(place, directory)
            if place == "tmpfs" and any(wanted(f"{what}.small") for what in ("save", "load")):
                small(directory)
            if place == "tmpfs" and wanted("load.reshard"):
                for name, ratio in ours("reshard", directory).items():
                    emit(f"load.reshard_{name}", cairn=ratio, unit="bytes read / needed", target=1.05)
            if place == "tmpfs" and wanted("save.coordination"):
                exchanged = ours("coordination", directory)
                emit("save.coordination", cairn=exchanged["again"], unit="bytes/rank", target=1000,
                     note=f"an unchanged plan of 32 tensors; {exchanged['first']} the first time")
            if place == "disk" and wanted("memory"):
                memory(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
