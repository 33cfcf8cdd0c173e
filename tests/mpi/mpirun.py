"""Runs a program of the build as ranks of MPI."""

from __future__ import annotations

import re
import subprocess

from programs import TRIALS, command

# Open MPI refuses root and more ranks than cores unless it is told; loopback only.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader"]


def mpirun(
    ranks: int, program: str, *args: object, options: tuple[str, ...] = (), timeout: float = 1200
) -> subprocess.CompletedProcess[str]:
    return command(*MPIRUN, *options, "-n", ranks, TRIALS / program, *args, timeout=timeout)


def said_by(done: subprocess.CompletedProcess[str]) -> dict[int, str]:
    """What each rank said that lived to the end ("rank 3: ok")."""
    return {int(rank): text for rank, text in re.findall(r"^rank (\d+): (.*)$", done.stdout, re.MULTILINE)}
