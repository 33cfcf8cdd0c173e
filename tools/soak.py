#!/usr/bin/env python3
"""Runs the trials of tests/trial for a while and writes down what they found: tools/soak.py [MINUTES] [--only NAME...]

Each kind of trial gets its share of the time, in rounds of new seeds, two at once. A line for each kind goes into
docs/reliability-ledger.md: when, which commit, which seeds, how much, what was found. Exit status 1 when a promise
was broken; the line then names the seed, which repeats it. Programs come from build/release/tests and build/fuzz.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(os.environ.get("CAIRN_TRIALS", ROOT / "build/release/tests"))
LEDGER = ROOT / "docs/reliability-ledger.md"
JOBS = int(os.environ.get("JOBS", "2"))

Command = Callable[[Path, int], list[str]]  # a directory of its own, a seed


@dataclass
class Trial:
    """One kind of trial: its program, and its part of the time."""

    name: str
    share: float
    command: Command
    step: int = 1  # how many seeds a round uses up

    def runs(self, directory: Path, seed: int) -> list[str]:
        program, *rest = self.command(directory, seed)
        return [str(PROGRAMS / program), *rest]


@dataclass
class Tally:
    """What the rounds of a trial added up to."""

    first: int
    last: int = 0
    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


def flips_of(kind: str) -> Command:
    return lambda directory, seed: ["flips", kind, "20000", str(seed)]


TRIALS = [
    Trial("kills", 3, lambda directory, seed: ["kill_save", str(directory / "run"), "500", str(seed)]),
    Trial("lost power", 3, lambda directory, seed: ["power_loss", str(directory), "20000", str(seed)]),
    Trial("simulated ranks", 4, lambda directory, seed: ["simulate", "20000", str(seed)], step=20_000),
    *(Trial(f"flips, {kind}", 0.5, flips_of(kind)) for kind in ("metadata", "distcp", "manifest", "torch", "cuts")),
    Trial("changed files", 0.5, lambda directory, seed: ["changed_files", str(directory), "1000", str(seed)]),
]


def add_counts(tally: Tally, found: dict[str, Any], prefix: str = "") -> None:
    """Numbers add up; those in an inner object carry its name."""
    for name, value in found.items():
        if isinstance(value, dict):
            add_counts(tally, value, f"{prefix}{name} ")
        elif isinstance(value, int) and not isinstance(value, bool):
            tally.counts[prefix + name] += value


def run_round(trial: Trial, seed: int, tally: Tally) -> bool:
    with tempfile.TemporaryDirectory(prefix="cairn-soak-") as directory:
        done = subprocess.run(trial.runs(Path(directory), seed), text=True, capture_output=True)
    if done.returncode != 0:
        tally.broken.append(f"seed {seed}: {(done.stderr.strip().splitlines() or [f'status {done.returncode}'])[-1]}")
        return False
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            add_counts(tally, json.loads(line))
    tally.rounds += 1
    return True


def run_trial(trial: Trial, seconds: float, first: int) -> Tally:
    """Rounds until the time is up or a promise is broken; one at least."""
    tally, seed, until = Tally(first), first, time.monotonic() + seconds
    while run_round(trial, seed, tally):
        tally.last = seed + trial.step - 1
        seed += trial.step
        if time.monotonic() >= until:
            break
    return tally


def fuzz(seconds: float) -> Tally:
    """Every fuzz target for its part of the time."""
    targets = len(list((ROOT / "build/fuzz/fuzz").glob("fuzz_*"))) or 1
    each = max(1, int(seconds * JOBS / targets))
    done = subprocess.run([str(ROOT / "tools/fuzz.sh"), str(each)], text=True, capture_output=True)
    tally = Tally(0)
    for line in done.stdout.splitlines():
        print(line)
        if found := re.match(r"(\w+) +(\d+) +\d+ +(\d+)$", line):
            tally.counts[found[1]] = int(found[2])
    tally.broken = [] if done.returncode == 0 else ["see build/fuzz-findings"]
    return tally


def line_for(name: str, tally: Tally, seconds: float) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True, capture_output=True).stdout
    today = datetime.date.today().isoformat()
    seeds = f"{tally.first}–{tally.last}" if tally.last else "–"
    counts = ", ".join(f"{count:,} {what}" for what, count in tally.counts.items() if count)
    found = "; ".join(tally.broken) or "none"
    return f"| {today} | {commit.strip()} | {name} | {seeds} | {counts} | {seconds:.0f} | {found} |\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=60)
    parser.add_argument("--only", nargs="*", help="names of trials, or 'fuzz'")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    args = parser.parse_args()
    trials = [trial for trial in TRIALS if not args.only or trial.name in args.only]
    fuzz_share = 4.0 if not args.only or "fuzz" in args.only else 0.0
    unit = 60 * args.minutes / ((sum(trial.share for trial in trials)) / JOBS + fuzz_share)
    first = int(time.time()) << 20  # nobody has had these seeds yet

    def run(trial: Trial) -> bool:
        start = time.monotonic()
        tally = run_trial(trial, unit * trial.share, first)
        return note(args.ledger, trial.name, tally, time.monotonic() - start)

    with ThreadPoolExecutor(JOBS) as pool:
        good = all(list(pool.map(run, trials)))
    if fuzz_share:
        start = time.monotonic()
        good = note(args.ledger, "fuzz", fuzz(unit * fuzz_share), time.monotonic() - start) and good
    return 0 if good else 1


def note(ledger: Path, name: str, tally: Tally, seconds: float) -> bool:
    line = line_for(name, tally, seconds)
    print(line, end="", flush=True)
    with ledger.open("a") as file:
        file.write(line)
    return not tally.broken


if __name__ == "__main__":
    sys.exit(main())
