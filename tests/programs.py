"""The programs that tests run, and how they are run.

They come from build/release. CAIRN_BUILD names another build, CAIRN_CLI and CAIRN_PROBE another command and another
cairn_probe, CAIRN_TRIALS another directory of trials and checks.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("CAIRN_BUILD", ROOT / "build/release")).absolute()
TRIALS = Path(os.environ.get("CAIRN_TRIALS", BUILD / "tests")).absolute()
CLI = Path(os.environ.get("CAIRN_CLI", BUILD / "cairn")).absolute()
PROBE = Path(os.environ.get("CAIRN_PROBE", TRIALS / "cairn_probe")).absolute()
FLAGS = (TRIALS.parent / "CMakeCache.txt").read_text()
THREAD_SANITIZED = "-fsanitize=thread" in FLAGS
GOLDEN = ROOT / "tests/golden/torch-2.11-two-ranks"


def plain_build_only(reason: str) -> pytest.MarkDecorator:
    """For tests that mean nothing under a sanitizer."""
    return pytest.mark.skipif("-fsanitize" in FLAGS, reason=f"under a sanitizer: {reason}")


def not_under_tsan(reason: str) -> pytest.MarkDecorator:
    """For tests that mean nothing under ThreadSanitizer."""
    return pytest.mark.skipif(THREAD_SANITIZED, reason=f"under ThreadSanitizer: {reason}")


def command(*args: object, timeout: float = 1200, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, args)], text=True, capture_output=True, timeout=timeout, **options)


def seed(end: int = 2**31) -> int:
    """A new one each time; CAIRN_SEED repeats one."""
    chosen = int(os.environ.get("CAIRN_SEED", time.time_ns() % end))
    print("seed", chosen)
    return chosen


def trial(program: str, *args: object, timeout: float = 3000, **options: object) -> list[dict]:
    """The JSON lines of a program that keeps its promises."""
    done = command(TRIALS / program, *args, timeout=timeout, **options)
    assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}{done.stdout}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(*lines, sep="\n")
    return lines
