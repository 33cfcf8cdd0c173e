#!/usr/bin/env python3
"""The global step of a save, against torch 2.13 on the same plans: 256 ranks of 1,100 entries.

torch plans once (it takes a while); bench/plan.cc makes the same plans, plans five times and gives its best.
The larger worlds are bench/plan.cc's own rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "bench" / "plan"
RANKS, TENSORS = 256, 1_100

STOCK = """
import json, logging, pickle, sys, time
from torch import Size, float32
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
ranks, tensors = int(sys.argv[1]), int(sys.argv[2])

def box(kind, r, n):
    if kind < 4: return [8 * n, 1024], [8 * r, 0], [8, 1024]
    if kind == 4: return [n, 4096], [r // 8 * 8, r % 8 * 512], [8, 512]
    if kind == 5: return [4 * n, 256], [r % (n // 2) * 8, 0], [8, 256]
    return [512 * (kind - 5), 64], [0, 0], [512 * (kind - 5), 64]

def item(t, r):
    name, kind = f"model.layers.{t // 10}.block.param_{t % 10}.weight", t % 10
    if kind == 9: return WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO)
    size, offsets, sizes = map(Size, box(kind, r, ranks))
    data = TensorWriteData(ChunkStorageMetadata(offsets, sizes), TensorProperties(dtype=float32), size)
    return WriteItem(MetadataIndex(name, offsets), WriteItemType.SHARD if kind < 6 else WriteItemType.TENSOR,
                     tensor_data=data)

paths = {f"model.layers.{t // 10}.block.param_{t % 10}.weight":
         ("model", "layers", str(t // 10), "block", f"param_{t % 10}", "weight") for t in range(tensors)}
plans = [SavePlan([item(t, r) for t in range(tensors)], planner_data=dict(paths)) for r in range(ranks)]
planner = DefaultSavePlanner()
def sent(plan): return pickle.loads(pickle.dumps(plan))
start = time.perf_counter()
arrived = [sent(plan) for plan in plans]
wire = time.perf_counter() - start
start = time.perf_counter()
answer, metadata = planner.create_global_plan(arrived)
plan = time.perf_counter() - start
start = time.perf_counter()
for p in answer: sent(p)
wire += time.perf_counter() - start
print(json.dumps({"plan": plan, "with_wire": plan + wire, "bytes_per_item": len(pickle.dumps(plans[1])) / tensors}))
"""


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    if not only.startswith("plan") and not "plan".startswith(only):
        return 0
    sizes = [str(RANKS), str(TENSORS)]
    ours = json.loads(subprocess.run([PROGRAM, "torch", *sizes], check=True, capture_output=True, text=True).stdout)
    print("plan: torch plans 256 ranks of 1,100 entries, once", flush=True)
    stock = json.loads(
        subprocess.run([sys.executable, "-c", STOCK, *sizes], check=True, capture_output=True, text=True).stdout
    )
    for name, key, target in (("plan.256x1100", "plan", 50), ("plan.256x1100_wire", "with_wire", 100)):
        row = {
            "name": name,
            "cairn": 1e3 * ours[key],
            "unit": "ms",
            "stock": 1e3 * stock[key],
            "ratio": stock[key] / ours[key],
            "target": target,
            "note": "dedup, global plan, metadata, validation" if key == "plan" else "and encoding, both ways",
        }
        print(json.dumps(row))
    row = {"name": "plan.wire_bytes", "cairn": ours["bytes_per_item"], "unit": "bytes/item"}
    print(json.dumps({**row, "stock": stock["bytes_per_item"], "note": "names and paths included"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
