"""Two jobs save under one id, and flock keeps neither out, as where locks end at the machine: by a flock that lets
everybody have every lock, and through two mounts of one folder, each with locks of its own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mounts
import numpy
import pytest

import cairn

ROUNDS = 50

# Everybody gets every lock.
SHIM = r"""
int flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  return 0;
}
"""

# Reads "VERSION PATH" lines, saves, answers "saved", "conflict" or the error.
JOB = """
import sys
import numpy
import cairn

for line in sys.stdin:
    version, path = line.split()
    state = {"a": numpy.full(50_000, int(version)), "b": numpy.full(9, int(version)), "version": int(version)}
    try:
        cairn.save(state, path, durable=False, files_per_rank=2)
        print("saved", flush=True)
    except cairn.Error as e:
        print(e.code if e.code == "conflict" else repr(e), flush=True)
"""


def shim_in(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c"], check=True)
    return folder / "shim.so"


class Job:
    """Sees the folder at `root`."""

    def __init__(self, root: Path, shim: Path | None = None) -> None:
        self.root = root
        environment = {**os.environ, **({"LD_PRELOAD": str(shim)} if shim else {})}
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def begin(self, version: int, name: str) -> None:
        print(version, self.root / name, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(600) == 0


def loaded(path: Path) -> int:
    state = cairn.load(None, path)
    version = state["version"]
    assert (state["a"] == version).all() and (state["b"] == version).all()
    return version


@pytest.fixture(params=["shim", "mounts", "crippled-mounts"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Job, Job]]:
    folder = tmp_path / "folder"
    folder.mkdir()
    if request.param == "shim":
        shim = shim_in(tmp_path)
        yield Job(folder, shim), Job(folder, shim)
        return
    mounts.skip_without_mounts()
    switches = mounts.ALL if request.param == "crippled-mounts" else ["flock-per-mount"]
    with (
        mounts.mounted(folder, tmp_path / "one", *switches) as one,
        mounts.mounted(folder, tmp_path / "other", *switches) as other,
    ):
        yield Job(one), Job(other)


@pytest.mark.parametrize("new", [True, False], ids=["a-new-id", "an-old-id"])
def test_of_two_jobs_one_checkpoint_stays_whole(new: bool, jobs: tuple[Job, Job], tmp_path: Path) -> None:
    seed = int(os.environ.get("CAIRN_SEED", "0")) or random.randrange(1 << 30)
    print("CAIRN_SEED", seed)
    chance = random.Random(seed)
    one, other = jobs
    for job in jobs:  # importing takes longer than a save
        job.begin(0, "first")
        assert job.answer() == "saved"
    name = "id"
    path = tmp_path / "folder" / name
    if not new:
        cairn.save({"a": numpy.zeros(1), "b": numpy.zeros(1), "version": 0}, path)
    for i in range(1, ROUNDS + 1):
        if new:
            name = f"id-{i}"
            path = path.parent / name
        one.begin(2 * i, name)
        for _ in range(chance.randrange(20_000)):
            pass
        other.begin(2 * i + 1, name)
        answers = {2 * i: one.answer(), 2 * i + 1: other.answer()}
        assert set(answers.values()) <= {"saved", "conflict"}, answers
        winners = {version for version, answer in answers.items() if answer == "saved"}
        assert winners, "nobody has saved"
        assert loaded(path) in winners, answers
        assert cairn.verify(path)["ok"]
    one.end()
    other.end()
