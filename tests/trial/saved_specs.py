"""Checkpoints of a few MiB that cairn_probe saves and compares; a spec says what is in one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from programs import CLI, PROBE, command


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
