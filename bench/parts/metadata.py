#!/usr/bin/env python3
"""Listing and writing the metadata of large checkpoints, against Python's pickle and real torch classes.

Two checkpoints are made once, by torch, under build/bench-data/: 100,000 tensors of one chunk each, and
2,000 tensors of 1,000 chunks. This process stays small on purpose: a child's peak memory counts from its
parent's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
DATA = ROOT / "build" / "bench-data"
SIZES = {"100k": (100_000, 1), "2M": (2_000, 1_000)}

MAKE = """
import pickle, sys
from pathlib import Path
from torch import Size, float32
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                   TensorProperties, TensorStorageMetadata)
tensors, chunks, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rows, length = 4096, 4096 * 1024 * 4 + 1577
state, places, paths, ends = {}, {}, {}, [0] * 8
for t in range(tensors):
    name = f"model.layers.{t // 10}.block.param_{t % 10}.weight"
    boxes = []
    for c in range(chunks):
        boxes.append(ChunkStorageMetadata(Size([c * rows, 0]), Size([rows, 1024])))
        # A name and an offset of its own, as they are when the plans came from other ranks.
        index = MetadataIndex("".join(list(name)), Size([c * rows, 0]), c)
        places[index] = _StorageInfo(f"__{c % 8}_0.distcp", ends[c % 8], length)
        ends[c % 8] += length
    state[name] = TensorStorageMetadata(TensorProperties(dtype=float32), Size([rows * chunks, 1024]), boxes)
    paths[name] = tuple(name.split("."))
with open(out, "wb") as f:
    pickle.dump(Metadata(state, paths, places, StorageMeta(Path("run/step-1"), "save-1"), "1.0.0"), f)
"""

STOCK = """
import io, json, pickle, sys, time
import torch.distributed.checkpoint
def timed(f):
    start = time.perf_counter()
    result = f()
    return result, time.perf_counter() - start
data = open(sys.argv[1], "rb").read()
loads = [timed(lambda: pickle.loads(data)) for _ in range(int(sys.argv[2]))]
metadata = loads[0][0]
dumps = [timed(lambda: pickle.dump(metadata, io.BytesIO()))[1] for _ in range(int(sys.argv[3]))]
print(json.dumps({"load_ms": 1e3 * min(s for _, s in loads), "dump_ms": 1e3 * min(dumps, default=0)}))
"""


def make(size: str) -> Path:
    """The folder of a checkpoint of this size; only its .metadata is there."""
    folder = DATA / size
    if not (folder / ".metadata").exists():
        print(f"metadata: making {folder.relative_to(ROOT)} with torch, once", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / "unfinished"
        tensors, chunks = SIZES[size]
        subprocess.run([sys.executable, "-c", MAKE, str(tensors), str(chunks), str(unfinished)], check=True)
        unfinished.rename(folder / ".metadata")
    return folder


def ls(folder: Path, times: int) -> tuple[float, int]:
    """Best wall time in seconds and largest peak memory in bytes of `cairn ls`, its output thrown away."""
    best, peak = float("inf"), 0
    command = str(BUILD / "cairn")
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    for _ in range(times):
        start = time.perf_counter()
        child = os.posix_spawn(command, [command, "ls", str(folder)], os.environ, file_actions=nowhere)
        _, status, usage = os.wait4(child, 0)
        best = min(best, time.perf_counter() - start)
        peak = max(peak, usage.ru_maxrss * 1024)
        if status != 0:
            raise SystemExit(f"metadata: cairn ls {folder} failed")
    return best, peak


def stock(folder: Path, loads: int, dumps: int) -> tuple[dict[str, float], float]:
    """What torch and pickle need: times inside the process, and the wall time of all of it in ms."""
    start = time.perf_counter()
    command = [sys.executable, "-c", STOCK, str(folder / ".metadata"), str(loads), str(dumps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout), 1e3 * (time.perf_counter() - start)


def report(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"name": name, "cairn": round(value, 3), "unit": unit, **more}), flush=True)


def list_100k() -> None:
    folder = make("100k")
    wall, peak = ls(folder, times=5)
    wall_ms = 1e3 * wall
    report("ls.100k_wall", wall_ms, "ms", target=100)
    report("ls.100k_rss", peak / 1e6, "MB", target=200)
    process_ms = min(stock(folder, loads=1, dumps=0)[1] for _ in range(2))
    inside, _ = stock(folder, loads=3, dumps=0)
    load_ms = inside["load_ms"]
    report("ls.100k_vs_pickle", wall_ms, "ms", stock=round(process_ms, 1), ratio=process_ms / wall_ms, target=20,
           note="stock: new process, import torch, pickle.load")
    report("ls.100k_vs_load_alone", wall_ms, "ms", stock=round(load_ms, 1), ratio=load_ms / wall_ms,
           note="stock: pickle.load alone, torch already imported")


def list_2m() -> None:
    wall, peak = ls(make("2M"), times=3)
    report("ls.2M_wall", wall, "s", target=3)
    report("ls.2M_bytes_per_chunk", peak / 2e6, "B", target=300, note="peak memory / chunks")


def write_100k() -> None:
    folder = make("100k")
    copy = str(DATA / "copy.metadata")
    probe = [str(BUILD / "tests" / "cairn_probe"), "rewrite-metadata", "--time", str(folder / ".metadata"), copy]
    write_ms = float("inf")
    for _ in range(5):
        done = subprocess.run(probe, check=True, stdout=subprocess.PIPE, text=True)
        write_ms = min(write_ms, json.loads(done.stdout)["write_ms"])
    inside, _ = stock(folder, loads=1, dumps=3)
    dump_ms = inside["dump_ms"]
    report("metadata.write_100k", write_ms, "ms", stock=round(dump_ms, 1), ratio=dump_ms / write_ms, target=10,
           note="stock: pickle.dump of the same object; both into memory")
    os.remove(copy)


PARTS = {"ls.100k": list_100k, "ls.2M": list_2m, "metadata.write_100k": write_100k}


def main() -> None:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    for prefix, part in PARTS.items():
        if prefix.startswith(only) or only.startswith(prefix):
            part()


if __name__ == "__main__":
    main()
