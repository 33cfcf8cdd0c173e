"""Processes that end, are ended, run out of disk, or go on for long while they save in the background."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import CLI, TRIALS, command, plain_build_only, trial

FAST = 64  # MiB/s: the 16 MiB of a save take a quarter of a second
SLOW = 1  # a save takes 16 s: whoever ends the process after the first MiB ends it in the middle


def background(*args: object) -> list[dict]:
    return trial("background", *args, timeout=1200)


def cairn(*args: object) -> str:
    done = command(CLI, *args, timeout=600)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def version_in(run: Path) -> int:
    """Of a checkpoint that is whole."""
    cairn("verify", run)
    return int(json.loads(cairn("show", run, "version", "--json"))["value"])


def debris_of(run: Path) -> list[str]:
    return [file["file"] for file in json.loads(cairn("gc", run, "--dry-run", "--json"))["files"]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A checkpoint of version 1."""
    assert background("save", tmp_path / "run", 1) == [{"code": None}]
    return tmp_path / "run"


@pytest.mark.parametrize("how", ["return", "exit"])
def test_the_end_of_a_process_waits_for_its_saves(run: Path, how: str) -> None:
    background("end", run, how, "wait", FAST)
    assert version_in(run) == 2
    assert debris_of(run) == []


@pytest.mark.parametrize("how", ["return", "exit"])
def test_the_end_of_a_process_can_cancel_its_saves(run: Path, how: str) -> None:
    files = sorted(os.listdir(run))
    background("end", run, how, "cancel", SLOW)
    assert version_in(run) == 1
    assert sorted(os.listdir(run)) == files  # nothing is left of it


def check_what_sudden_death_left(run: Path) -> None:
    files = set(os.listdir(run))
    assert version_in(run) == 1
    debris = set(debris_of(run))
    assert debris, "the save was not under way"
    cairn("gc", run)
    assert set(os.listdir(run)) == files - debris - {".cairn-lock"}
    assert version_in(run) == 1
    assert background("save", run, 3) == [{"code": None}]
    assert version_in(run) == 3


@pytest.mark.parametrize("how", ["quick_exit", "_exit"])
def test_an_end_without_farewell_leaves_the_old_checkpoint(run: Path, how: str) -> None:
    background("end", run, how, "wait", SLOW)
    check_what_sudden_death_left(run)


@contextlib.contextmanager
def saving(run: Path) -> Iterator[subprocess.Popen]:
    """A process in the middle of a background save of version 2."""
    words = [TRIALS / "background", "end", run, "wait", "wait", str(SLOW)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == '{"writing": true}\n'
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_the_old_checkpoint(run: Path, sent: signal.Signals) -> None:
    with saving(run) as process:
        process.send_signal(sent)
        assert process.wait(timeout=600) == -sent
    check_what_sudden_death_left(run)


def test_another_process_cannot_save_the_same_id_meanwhile(run: Path) -> None:
    with saving(run):
        assert [line["code"] for line in background("save", run, 3)] == ["conflict"]
    assert version_in(run) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("how", ["checked", "unchecked", "zstd"])
def test_a_full_disk_leaves_the_old_checkpoint(small_disk: Path, how: str) -> None:
    run = small_disk / "run"
    assert background("save", run, 1) == [{"code": None}]
    files, free = sorted(os.listdir(run)), os.statvfs(small_disk).f_bavail
    assert background("full", run, how) == [{"code": "io", "errno": errno.ENOSPC}]
    assert version_in(run) == 1
    assert sorted(os.listdir(run)) == files
    assert os.statvfs(small_disk).f_bavail == free


@plain_build_only("it holds back memory that was freed")
def test_fifty_saves_take_no_more_than_ten(tmp_path: Path) -> None:
    curve = background("flat", tmp_path / "run")
    assert len(curve) == 50
    for what in ("threads", "files"):
        assert curve[-1][what] == curve[10][what], curve
    assert curve[-1]["kib"] - curve[10]["kib"] < 16 << 10, curve  # half of one state
