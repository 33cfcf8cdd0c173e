"""A model eight times larger than the memory there is converts in every direction."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
cairn = pytest.importorskip("cairn")

from convert_states import save_dcp

BUDGET = 16 << 20
LIMIT = 48 << 20  # beyond what the process has when it starts
MODEL = 8 * LIMIT

# RLIMIT_DATA counts what malloc and mmap give out, not the program's files.
RUN = """
import resource, sys
import cairn
def held():
    for line in open("/proc/self/status"):
        if line.startswith("VmData"): return int(line.split()[1]) << 10
source, to, destination, budget, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_DATA, (held() + int(limit),) * 2)
cairn.convert(source, destination, to=to, memory_budget=int(budget), threads=4, durable=False,
              **({"max_shard_size": 100 << 20} if to == "huggingface" else {}))
peak = next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(peak)
"""
ENDINGS = {"dcp": "", "torch": ".pt", "safetensors": ".safetensors", "huggingface": "-hub"}


@pytest.fixture(scope="module")
def folder() -> Path:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)


def small_stacks() -> None:
    # Threads reserve address space for their stacks and never touch most of it; it would count.
    resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def convert(source: Path, to: str, destination: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(source), to, str(destination), str(BUDGET), str(LIMIT)],
        capture_output=True, text=True, timeout=1200, env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        preexec_fn=small_stacks,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_every_direction_within_the_limit(folder: Path) -> None:
    # One tensor alone is larger than the limit.
    torch.manual_seed(1)
    large = torch.randn(MODEL * 3 // 4 // 4096, 1024)
    state = {"large": large, **{f"layer.{i}": torch.randn(1 << 20) for i in range(MODEL // 4 // (4 << 20))}}
    save_dcp(state, folder / "first")
    sums = {name: float(t.double().sum()) for name, t in state.items()}
    del state, large
    sources = {"dcp": folder / "first"}
    for to in ("torch", "safetensors", "huggingface"):
        sources[to] = folder / f"first{ENDINGS[to]}"
        convert(sources["dcp"], to, sources[to])
    for source, to in itertools.product(sources, ENDINGS):
        if source == "dcp" and to != "dcp":
            continue
        destination = folder / f"second{ENDINGS[to]}"
        convert(sources[source], to, destination)
        read = cairn.open(destination)["layer.3"][:]
        assert float(read.astype("float64").sum()) == pytest.approx(sums["layer.3"], rel=1e-12)
        del read
        subprocess.run(["rm", "-r", str(destination)], check=True)
