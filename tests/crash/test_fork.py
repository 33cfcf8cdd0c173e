"""A forked process has no part in what its parent does: neither in its lock, nor in its saves in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import cairn

# A trainer that stands in the middle of a save, and has forked workers meanwhile.
TRAINER = """
import os, sys, threading, time
import numpy
import cairn

def look(phase, done, total):
    if os.fork() == 0:
        print("forked", flush=True)  # and has given up what it has no part in
        time.sleep(600)
        os._exit(0)
    time.sleep(600)

cairn.save({"w": numpy.ones(1000)}, sys.argv[1], progress=look)
"""

ASYNC = """
import os, sys
import torch
import cairn.torch

torch.set_num_threads(1)  # its own threads do not survive a fork

def run(path, wait):
    saved = cairn.torch.async_save({"w": torch.ones(1 << 22)}, checkpoint_id=path, no_dist=True)
    if wait:
        saved.result()
    return saved

kept = run(sys.argv[1], sys.argv[2] == "after")
if os.fork() == 0:
    if sys.argv[3] == "saves":
        run(sys.argv[1] + "-child", True)
    sys.exit(7)
_, status = os.wait()
kept.result()
assert os.waitstatus_to_exitcode(status) == 7, status
"""


def test_the_workers_of_a_killed_trainer_keep_nobody_from_saving(tmp_path: Path) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path / "id")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert trainer.stdout.readline() == "forked\n"
        with pytest.raises(cairn.Error, match="holds this lock"):
            cairn.save({"w": numpy.zeros(10)}, tmp_path / "id")
        trainer.kill()
        trainer.wait()
        cairn.save({"w": numpy.zeros(10)}, tmp_path / "id")
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
    assert cairn.verify(tmp_path / "id")["debris"] == []


@pytest.mark.parametrize("when", ["during", "after"])
@pytest.mark.parametrize("child", ["ends", "saves"])
def test_a_forked_child_of_a_process_that_saves_in_the_background_ends(when: str, child: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASYNC, str(tmp_path / "id"), when, child], timeout=1200, stderr=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr.decode()
    assert cairn.verify(tmp_path / "id")["ok"]
    if child == "saves":
        assert cairn.verify(tmp_path / "id-child")["ok"]
