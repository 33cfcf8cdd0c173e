#!/usr/bin/env python3
"""Conversions between formats, against a plain copy of the same bytes and against stock's converters.

Memory (/dev/shm) and the disk that holds the tree; CAIRN_BENCH_DISK names another directory for the disk.
CAIRN_BENCH_CONVERT_BYTES is the size of the model (4 GiB). A copy reads and writes pieces of 4 MiB, on one
thread or on as many as there are cores, the better of the two, and makes the file durable. The disk's sources
are not in the page cache. Every time is the best of three, stock's too, read-back and checksums on. Memory is
the peak of the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ.get("CAIRN_CLI", ROOT / "build" / "release" / "cairn"))
BYTES = int(os.environ.get("CAIRN_BENCH_CONVERT_BYTES", 4 << 30))
GB = BYTES / 1e9
PIECE = 4 << 20
NAMES = {"dcp": "dcp", "torch": "m.pt", "safetensors": "m.safetensors", "huggingface": "hub"}

MAKE = """
import sys, warnings, torch, torch.distributed.checkpoint as dcp
warnings.simplefilter("ignore")
count = max(1, int(sys.argv[2]) >> 25)
dcp.save({"model": {f"layer{i}": torch.rand(1 << 11, 1 << 12) for i in range(count)}}, checkpoint_id=sys.argv[1], no_dist=True)
"""
STOCK = """
import sys, time, warnings, torch.distributed.checkpoint.format_utils as f
warnings.simplefilter("ignore")
start = time.perf_counter()
getattr(f, sys.argv[1])(sys.argv[2], sys.argv[3])
print(time.perf_counter() - start)
"""


def emit(name: str, **row: Any) -> None:
    print(json.dumps({"name": f"convert.{name}", **row}), flush=True)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def drop_caches(path: Path) -> None:
    for file in files_of(path):
        fd = os.open(file, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def best(source: Path, destination: Path, work: Callable[[], float]) -> float:
    times = []
    for _ in range(3):
        remove(destination)
        drop_caches(source)
        times.append(work())
    return min(times)


def copy(source: Path, destination: Path, threads: int) -> float:
    start = time.perf_counter()
    destination.mkdir()
    for file in files_of(source):
        size = file.stat().st_size
        read, write = os.open(file, os.O_RDONLY), os.open(destination / file.name, os.O_WRONLY | os.O_CREAT)

        def part(number: int) -> None:
            buffer = bytearray(PIECE)
            for offset in range(number * PIECE, size, threads * PIECE):
                got = os.preadv(read, [buffer], offset)
                os.pwrite(write, memoryview(buffer)[:got], offset)

        workers = [threading.Thread(target=part, args=(i,)) for i in range(threads)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        os.fdatasync(write)
        os.close(read)
        os.close(write)
    return time.perf_counter() - start


def convert(source: Path, to: str, destination: Path, peaks: list[int]) -> float:
    command = [CLI, "convert", source, destination, "--to", to, "--json"]
    start = time.perf_counter()
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"convert: {command} failed")
    peaks.append(usage.ru_maxrss)
    return seconds


def stock(name: str, source: Path, destination: Path) -> float:
    command = [sys.executable, "-c", STOCK, name, str(source), str(destination)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def pair_rows(place: str, directory: Path, source: Path, kind: str, to: str, raw: float) -> None:
    """The rows of one conversion: of a copy, of stock where it can do the same, the memory it took."""
    destination, peaks = directory / f"made-{NAMES[to]}", []
    seconds = best(source, destination, lambda: convert(source, to, destination, peaks))
    row = {"cairn": GB / seconds, "unit": "GB/s", "limit": raw}
    theirs = {("dcp", "torch"): "dcp_to_torch_save", ("torch", "dcp"): "torch_save_to_dcp"}.get((kind, to))
    name = f"{place}.{kind}_{to}"
    emit(name, **row, ratio=GB / seconds / raw, target=0.5 if place == "tmpfs" else 0.7, note="of a copy")
    if theirs is not None and place == "tmpfs":
        slow = best(source, destination, lambda: stock(theirs, source, destination))
        emit(f"{name}_stock", **row, stock=GB / slow, ratio=slow / seconds, target=3, note=f"of stock's {theirs}")
    if place == "tmpfs":
        emit(f"memory.{kind}_{to}", cairn=max(peaks) / 1024, unit="MiB", target=320, note="peak of the process")
    remove(destination)


def rows(place: str, directory: Path) -> None:
    """One source at a time: a model in memory, its copy, and what stock needs beside them fill a small machine."""
    source, kind = directory / "source-dcp", "dcp"
    subprocess.run([sys.executable, "-c", MAKE, str(source), str(BYTES)], check=True)
    raw_to = directory / "raw"
    counts = {1, os.cpu_count() or 1}
    raw = GB / min(best(source, raw_to, lambda n=n: copy(source, raw_to, n)) for n in counts)
    remove(raw_to)
    for to in NAMES:
        pair_rows(place, directory, source, kind, to, raw)
    for next_kind, to in (("torch", "dcp"), ("safetensors", "dcp"), ("huggingface", "torch")):
        made = directory / f"source-{NAMES[next_kind]}"
        convert(source, next_kind, made, [])
        remove(source)
        source, kind = made, next_kind
        pair_rows(place, directory, source, kind, to, raw)
    remove(source)


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    disk = os.environ.get("CAIRN_BENCH_DISK", ROOT / "build")
    for place, parent in {"tmpfs": Path("/dev/shm"), "disk": Path(disk)}.items():
        prefix = f"convert.{place}"
        if not (prefix.startswith(only) or only.startswith(prefix) or (place == "tmpfs" and "memory" in only)):
            continue
        print(f"convert: {BYTES >> 20} MiB on {place}", flush=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="cairn-bench-") as name:
            rows(place, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
