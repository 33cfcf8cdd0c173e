"""Runs the programs of this directory, and what they need around them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CAIRN_BUILD", ROOT / "build/release")).absolute()
CLI = Path(os.environ.get("CAIRN_CLI", BUILD / "cairn")).absolute()
PROBE = BUILD / "tests/cairn_probe"


def seed() -> int:
    """A new one each time; CAIRN_SEED repeats one."""
    chosen = int(os.environ.get("CAIRN_SEED", time.time_ns() % 2**31))
    print("seed", chosen)
    return chosen


def trial(program: str, *args: object, timeout: float = 300) -> list[dict]:
    """The JSON lines of a program that keeps its promises."""
    done = subprocess.run([BUILD / "tests" / program, *map(str, args)], text=True, capture_output=True, timeout=timeout)
    assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}{done.stdout}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(*lines, sep="\n")
    return lines


def command(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, args)], text=True, capture_output=True, timeout=120, **options)


def spec_of(version: int, mib: float, *, ranks: int = 1, **options: object) -> str:
    """A state of so many MiB for cairn_probe's save and load; `version` changes every byte."""
    rows = max(1, int(mib * 256))
    cut = {"mesh": [ranks], "cuts": [0]}
    tensors = [
        {"name": "model.w", "dtype": "float32", "shape": [rows, 512], "seed": version, **cut},
        {"name": "model.b", "dtype": "int64", "shape": [7], "seed": version + 1},
        {"name": "optim.exp_avg", "dtype": "float32", "shape": [rows, 512], "seed": version + 2, **cut},
    ]
    return json.dumps({"ranks": ranks, "tensors": tensors, "objects": {"step": version}, **options})


def save(run: Path, spec: str, **options: object) -> subprocess.CompletedProcess[str]:
    return command(PROBE, "save", run, spec, **options)


def holds(run: Path, spec: str) -> bool:
    """Whether the checkpoint is that of the spec, every byte of it, and whole."""
    return command(PROBE, "load", run, spec).returncode == 0 and command(CLI, "verify", run).returncode == 0
