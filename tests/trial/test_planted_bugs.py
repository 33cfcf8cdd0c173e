"""Every mistake in bugs/ is found by at least one harness.

A harness that finds nothing proves nothing. A bug is a small patch; it is applied to a copy of the sources, of which what
changed is compiled, and the harnesses are linked with that. The short run plants four bugs, others every day, and tries
the harnesses of each until one finds it; the long one tries all of them on every bug. None may find anything where no
bug is planted: the short run tries this with the one harness that no other test runs.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Optional

import pytest
from planted import Planted
from programs import ROOT, THREAD_SANITIZED, TRIALS, command, seed

SEES = ("src", "include", "tests")  # for what runs again: tests/once.py

PATIENCE = 600  # seconds; a harness that hangs has found something

# What to run, with DIR and SEED filled in. A few seconds each.
HARNESSES: dict[str, list[str]] = {
    "promises": ["promises", "DIR"],
    "kill_at_points": ["kill_at_points", "DIR", "0", "SEED", "publish.before,publish.after,claim.,save.written,gc."],
    "two_jobs": ["two_jobs", "DIR", "12", "SEED"],
    "kill_save": ["kill_save", "DIR", "30", "SEED"],
    "stop_save": ["stop_save", "DIR", "2", "SEED"],
    "power_loss": ["power_loss", "DIR", "300", "SEED"],
    "os_faults": ["os_faults", "DIR", "SEED", "EIO", "overwrite"],
    "simulate": ["simulate", "200", "SEED"],
}
if THREAD_SANITIZED:
    del HARNESSES["simulate"]  # it has a pthread library of its own

# Which harness a bug is meant for; the others come after it.
MEANT_FOR = {
    "no-file-sync": "power_loss",
    "no-directory-sync": "power_loss",
    "rename-before-sync": "power_loss",
    "ignore-write-error": "os_faults",
    "unlink-then-rename": "kill_at_points",
    "remove-old-first": "kill_at_points",
    "reuse-file-names": "kill_save",
    "gc-removes-live": "kill_at_points",
    "ignore-rank-error": "kill_at_points",
    "commit-before-last-vote": "kill_save",
    "no-lock": "two_jobs",
}


BUGS = {patch.stem: patch for patch in sorted((ROOT / "tests/trial/bugs").glob("*.patch"))}
IN_TURN = 4  # of them in a short run


def order_for(bug: str, all_harnesses: bool) -> list[str]:
    if not bug and not all_harnesses:
        return ["promises"]
    meant = MEANT_FOR.get(bug, "promises")
    return [meant, *(name for name in HARNESSES if name != meant)]


def finds(name: str, programs: Path, directory: Path, chosen: int) -> Optional[str]:
    """What the harness, as it is in `programs`, finds; None when it is nothing."""
    directory.mkdir(parents=True)
    program, *words = ({"DIR": directory, "SEED": chosen}.get(word, word) for word in HARNESSES[name])
    environment = {**os.environ, "CAIRN_IO": "buffered"}
    try:
        done = command(programs / program, *words, env=environment, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode == 0:
        return None
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended with {done.returncode}"


def table(directory: Path, bugs: list[str], all_harnesses: bool) -> dict[str, dict[str, Optional[str]]]:
    """For each bug, and for none (""), what each harness that was tried says."""
    chosen = seed()
    found: dict[str, dict[str, Optional[str]]] = {}
    for bug in ["", *bugs]:
        found[bug] = {}
        planted = Planted(BUGS[bug], directory / f"{bug}-sources") if bug else None
        for name in order_for(bug, all_harnesses):
            programs = planted.link(HARNESSES[name][0]) if planted else TRIALS
            found[bug][name] = finds(name, programs, directory / (bug or "none") / name, chosen)
            if bug and found[bug][name] is not None and not all_harnesses:
                break
    show(found)
    return found


def show(found: dict[str, dict[str, Optional[str]]]) -> None:
    print(f"{'':26}" + "".join(f"{name:>16}" for name in HARNESSES))
    for bug, said in found.items():
        words = [
            "" if name not in said else "caught" if said[name] else "not"
            for name in HARNESSES
        ]
        print(f"{bug or '(no bug)':26}" + "".join(f"{word:>16}" for word in words))
    for bug, said in found.items():
        for name, text in said.items():
            if text:
                print(f"{bug or '(no bug)'}: {name}: {text}")


def check(found: dict[str, dict[str, Optional[str]]]) -> None:
    wrong = {name: said for name, said in found.pop("").items() if said}
    assert wrong == {}, "harnesses that find something where nothing is planted"
    assert [bug for bug, said in found.items() if not any(said.values())] == [], "bugs that nobody finds"


def test_every_patch_applies() -> None:
    assert len(BUGS) == 18
    for patch in BUGS.values():
        subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, check=True)


def test_planted_bugs_are_found_four_at_a_time(tmp_path: Path) -> None:
    first = int(time.time() // 86400) * IN_TURN
    names = list(BUGS)
    check(table(tmp_path, [names[(first + i) % len(names)] for i in range(IN_TURN)], all_harnesses=False))


@pytest.mark.slow
def test_every_harness_is_tried_on_every_bug(tmp_path: Path) -> None:
    check(table(tmp_path, list(BUGS), all_harnesses=True))
