"""Two jobs save under one id, and flock keeps neither out, as where locks end at the machine."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

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

# Reads "VERSION PATH" lines, saves, answers "saved" or the error's code.
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
        print(e.code, flush=True)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c"], check=True)
    return folder / "shim.so"


class Job:
    def __init__(self, shim: Path) -> None:
        environment = {**os.environ, "LD_PRELOAD": str(shim)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def begin(self, version: int, path: Path) -> None:
        print(version, path, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def loaded(path: Path) -> int:
    state = cairn.load(None, path)
    version = state["version"]
    assert (state["a"] == version).all() and (state["b"] == version).all()
    return version


@pytest.mark.parametrize("new", [True, False], ids=["a-new-id", "an-old-id"])
def test_of_two_jobs_one_checkpoint_stays_whole(new: bool, shim: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("CAIRN_SEED", "0")) or random.randrange(1 << 30)
    print("CAIRN_SEED", seed)
    chance = random.Random(seed)
    one, other = Job(shim), Job(shim)
    for job in (one, other):  # importing takes longer than a save
        job.begin(0, tmp_path / "first")
        assert job.answer() == "saved"
    kept = 0
    path = tmp_path / "id"
    if not new:
        cairn.save({"a": numpy.zeros(1), "b": numpy.zeros(1), "version": 0}, path)
    for i in range(1, ROUNDS + 1):
        if new:
            path = tmp_path / f"id-{i}"
        one.begin(2 * i, path)
        for _ in range(chance.randrange(20_000)):
            pass
        other.begin(2 * i + 1, path)
        answers = {2 * i: one.answer(), 2 * i + 1: other.answer()}
        assert set(answers.values()) <= {"saved", "conflict"}, answers
        winners = {version for version, answer in answers.items() if answer == "saved"}
        assert winners or not new, "nobody has saved"
        if winners:
            assert loaded(path) in winners, answers
            kept = loaded(path)
        else:
            assert loaded(path) == kept, answers
        assert cairn.verify(path)["ok"]
    one.end()
    other.end()
