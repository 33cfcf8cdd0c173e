#!/usr/bin/env python3
"""async_save from Python: how long the call blocks, when the snapshot is whole, when the checkpoint is there.

8.05 GB of bfloat16 in 400 tensors, on the GPU if there is one (a quarter of that on the CPU otherwise), saved to
memory (/dev/shm): the first save of a process and the second, by stock PyTorch with its own staging and with
DefaultStager, and by cairn. Each way is a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

GB = 8.05
TENSORS = 400
WAYS = ("stock", "stock_stager", "cairn", "cairn_overlapped", "cairn_prepared")


def make_state(device: str) -> dict[str, Any]:
    import torch

    elements = int((GB if device == "cuda" else GB / 4) * 1e9 / TENSORS / 2)
    return {f"w{i}": torch.full((elements,), float(i), dtype=torch.bfloat16, device=device) for i in range(TENSORS)}


def measure(way: str, where: str) -> list[dict[str, float]]:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    state = make_state(device)
    options: dict[str, Any] = {}
    if way.startswith("cairn"):
        import cairn.torch as dcp

        if way != "cairn":
            options["async_stager"] = dcp.OverlappedStager()
        if way == "cairn_prepared":
            dcp.prepare(state, overlapped=True)
    else:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager

        if way == "stock_stager":
            options["async_stager"] = DefaultStager()
    found = []
    for i in range(3):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        saved = dcp.async_save(state, checkpoint_id=f"{where}/{i % 2}", **options)
        times = {"return": time.perf_counter() - start}
        if hasattr(saved, "staging_completion"):
            saved.staging_completion.result()
            times["staged"] = time.perf_counter() - start
            saved = saved.upload_completion
        else:
            times["staged"] = times["return"]
        saved.result()
        times["done"] = time.perf_counter() - start
        found.append(times)
        if device == "cuda":
            torch.cuda.synchronize()
    return found


def main() -> int:
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
        return 0
    only = os.environ.get("CAIRN_BENCH_ONLY", "")
    if not ("torch.async".startswith(only) or only.startswith("torch.async")):
        return 0
    where = "/dev/shm/cairn-bench-async"
    for way in WAYS:
        try:
            ran = subprocess.run([sys.executable, __file__, way, where], capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                reason = (ran.stderr.strip().splitlines() or ["no reason"])[-1]
                print(f"torch_async: {way} failed: {reason}", flush=True)
                continue
            for number, times in enumerate(json.loads(ran.stdout)):
                for what, seconds in times.items():
                    name = f"torch.async.{way}.{what}_{number + 1}"
                    print(json.dumps({"name": name, "cairn": 1e3 * seconds, "unit": "ms"}), flush=True)
        finally:
            shutil.rmtree(where, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
