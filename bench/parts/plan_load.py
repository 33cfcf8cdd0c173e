#!/usr/bin/env python3
"""Read items for 1,000 boxes out of 100,000 chunks, against torch 2.13 on the same boxes.

The larger cases are bench/plan_load.cc's own rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "bench" / "plan_load"

STOCK = """
import json, time
from torch import Size
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
chunks = [ChunkStorageMetadata(Size([4 * i]), Size([4])) for i in range(100_000)]
stored = TensorStorageMetadata(TensorProperties(), Size([400_000]), chunks)
wanted = [ChunkStorageMetadata(Size([400 * i + 2]), Size([6])) for i in range(1_000)]
best = float("inf")
for _ in range(3):
    start = time.process_time()
    items = create_read_items_for_chunk_list("w", stored, wanted)
    best = min(best, time.process_time() - start)
print(json.dumps({"ms": 1e3 * best, "items": len(items)}))
"""


def run(*command: str) -> dict[str, float]:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    name, only = "plan.read_vs_torch", os.environ.get("CAIRN_BENCH_ONLY", "")
    if not name.startswith(only) and not only.startswith(name):
        return
    ours = run(str(PROGRAM), "torch")
    theirs = run(sys.executable, "-c", STOCK)
    if ours["items"] != theirs["items"]:
        raise SystemExit(f"plan_load: {ours['items']} items, torch has {theirs['items']}")
    row = {"name": name, "cairn": round(ours["ms"], 2), "unit": "ms", "stock": round(theirs["ms"], 1),
           "ratio": theirs["ms"] / ours["ms"], "note": "1,000 boxes out of 100,000 chunks of one tensor"}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
