"""A compressed tensor sixteen times larger than the budget is loaded within it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
cairn = pytest.importorskip("cairn")

BUDGET = 16 << 20
LIMIT = 64 << 20  # beyond the destination, and what the process has when it starts
ROWS, COLUMNS = 64 << 10, 1 << 10  # uint32: 256 MiB

# RLIMIT_DATA counts what malloc and mmap give out, not the program's files.
RUN = """
import resource, sys
import numpy as np
import cairn
source, rows, columns, budget, limit = sys.argv[1], *map(int, sys.argv[2:])
state = {"w": np.zeros((rows, columns), np.uint32)}
state["w"][:] = 1
held = next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (held + limit,) * 2)
cairn.load(state, source, memory_budget=budget)
print(int(state["w"].sum(dtype=np.uint64)))
"""


def small_stacks() -> None:
    # Threads reserve address space for their stacks and never touch most of it; it would count.
    resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def test_a_compressed_tensor_larger_than_the_budget_streams(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 1 << 16, (ROWS, COLUMNS), np.uint32)
    cairn.save({"w": values}, tmp_path / "run", transforms=["zstd"], durable=False)
    stored = sum(file.stat().st_size for file in (tmp_path / "run").iterdir())
    assert LIMIT < stored < values.nbytes, "it has to be compressed, and too large to be held compressed"
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, (tmp_path / "run", ROWS, COLUMNS, BUDGET, LIMIT))],
        capture_output=True, text=True, timeout=1200, env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        preexec_fn=small_stacks,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == int(values.sum(dtype=np.uint64))
