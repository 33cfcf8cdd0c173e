#!/usr/bin/env python3
"""Consolidation of sharded safetensors files, against stock's, and the memory it takes.

Two shards of every tensor, cut in the middle of its rows, in memory (/dev/shm). CAIRN_BENCH_CONVERT_BYTES is the
size of the model (4 GiB). Every time is the best of three; both run in a process of their own, whose peak is the
memory.
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

BYTES = int(os.environ.get("CAIRN_BENCH_CONVERT_BYTES", 4 << 30))
GB = BYTES / 1e9

MAKE = """
import json, sys, torch
from safetensors.torch import save_file
count, half = max(1, int(sys.argv[2]) >> 25), 1 << 10
for shard in (0, 1):
    info = {f"layer{i}": {"saved_offsets": [shard * half, 0]} for i in range(count)}
    save_file({name: torch.rand(half, 1 << 12) for name in info},
              f"{sys.argv[1]}/shard-0000{shard + 1}-model-00001-of-00001.safetensors",
              metadata={"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)})
"""
RUN = """
import json, resource, shutil, sys, time, warnings
warnings.simplefilter("ignore")
package, source, to, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
consolidate = __import__(f"{package}._consolidate_hf_safetensors", fromlist=["x"]).consolidate_safetensors_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for _ in range(3):
    shutil.rmtree(to, ignore_errors=True)
    __import__("os").mkdir(to)
    start = time.perf_counter()
    consolidate(source, to, {f"layer{i}": 1 for i in range(count)}, num_threads=2)
    times.append(time.perf_counter() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": min(times), "mib": (peak - before) / 1024}))
"""


def emit(name: str, **row: Any) -> None:
    print(json.dumps({"name": f"convert.{name}", **row}), flush=True)


def run(package: str, source: Path, to: Path) -> dict[str, float]:
    command = [sys.executable, "-c", RUN, package, source, to, max(1, BYTES >> 25)]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    shutil.rmtree(to)
    return json.loads(done.stdout)


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    if not ("convert.consolidate".startswith(only) or only.startswith("convert.consolidate")):
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cairn-bench-") as name:
        source, to = Path(name) / "shards", Path(name) / "whole"
        source.mkdir()
        subprocess.run([sys.executable, "-c", MAKE, str(source), str(BYTES)], check=True)
        ours = run("cairn.torch", source, to)
        stock = run("torch.distributed.checkpoint", source, to)
    row = {"cairn": GB / ours["seconds"], "unit": "GB/s", "stock": GB / stock["seconds"]}
    emit("consolidate", **row, ratio=stock["seconds"] / ours["seconds"], target=3, note="of stock's, on tmpfs")
    emit("consolidate_memory", cairn=ours["mib"], unit="MiB", stock=stock["mib"], target=320, note="beyond the imports")
    return 0


if __name__ == "__main__":
    sys.exit(main())
