"""Ranks that are silent, killed or without descriptors, and background saves of both kinds. What fails is in test_every_way_waits.py."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")

SOON = 300.0  # seconds; the process group itself would wait for 30 minutes


def silent_rank(rank: int, folder: str) -> None:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=3))
    given_up = Path(folder, "given up")
    if rank == 0:
        with pytest.raises(CheckpointException):
            dcp.save({"w": torch.ones(4)}, checkpoint_id=f"{folder}/id", process_group=group)
        given_up.touch()
        return
    while not given_up.exists():  # silent until then
        time.sleep(0.1)


def test_a_rank_that_is_silent_is_given_up_at_the_groups_timeout(tmp_path: Path) -> None:
    run_ranks(2, silent_rank, str(tmp_path))


def hold_gil(seconds: int) -> None:
    ctypes.PyDLL("libc.so.6").sleep(seconds)


class HoldsGil:
    def __reduce__(self) -> Any:
        hold_gil(8)
        return int, (1,)


def save_with_gil_held(rank: int, folder: str) -> list[float]:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=3))
    dcp.save({f"o{rank}": HoldsGil() if rank == 1 else 1, "w": torch.ones(2)}, checkpoint_id=folder, process_group=group)
    saved = dcp.async_save({"w": torch.full((2,), 2.0)}, checkpoint_id=f"{folder}/async", process_group=group)
    if rank == 0:
        hold_gil(8)
    saved.result(timeout=1200)
    dist.barrier()  # who has not begun to load, and holds the GIL for whatever else, is silent
    into = {"w": torch.zeros(2)}
    dcp.load(into, checkpoint_id=f"{folder}/async", process_group=group)
    return into["w"].tolist()


def test_a_rank_whose_python_holds_the_gil_is_alive(tmp_path: Path) -> None:
    assert run_ranks(2, save_with_gil_held, str(tmp_path)) == [[2.0, 2.0]] * 2


class Deadly:
    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def be_killed_or_notice(rank: int, store: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=3)
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder)
    begin = time.monotonic()
    try:
        dcp.save({f"o{rank}": Deadly() if rank == 1 else 1, "w": torch.zeros(2)}, checkpoint_id=folder)
        found = "success"
    except CheckpointException as error:
        found = f"{sorted(error.failures)} {time.monotonic() - begin < SOON}"
    Path(folder, f"found {rank}").write_text(found)
    os._exit(0)


def test_a_rank_that_is_killed_is_noticed_and_named(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    arguments = [(rank, str(tmp_path / "store"), str(tmp_path / "run")) for rank in range(3)]
    ranks = [context.Process(target=be_killed_or_notice, args=each) for each in arguments]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(2 * SOON)
    assert [each.exitcode for each in ranks] == [0, -signal.SIGKILL, 0]
    for rank in (0, 2):
        assert (tmp_path / "run" / f"found {rank}").read_text() == "[1] True"
    into = {"w": torch.zeros(2)}
    dcp.load(into, checkpoint_id=str(tmp_path / "run"))
    assert into["w"].tolist() == [1.0, 1.0]


def different_groups(rank: int, folder: str) -> list[str]:
    """Every rank is in another number of groups, and saves on those it is in, in its own time."""
    groups = {"01": dist.new_group([0, 1]), "12": dist.new_group([1, 2])}
    found = []
    for name, group in groups.items():
        state = {"w": torch.full((3,), float(name))}
        if str(rank) not in name:
            with pytest.raises(ValueError, match="not in the process group"):
                dcp.save(state, checkpoint_id=f"{folder}/{name}", process_group=group)
            continue
        dcp.async_save(state, checkpoint_id=f"{folder}/{name}", process_group=group).result(timeout=1200)
        dcp.save(state, checkpoint_id=f"{folder}/{name}", process_group=group)
        found.append(name)
    dcp.async_save({"w": torch.ones(3)}, checkpoint_id=f"{folder}/all").result(timeout=1200)
    return found


def test_ranks_may_be_in_different_numbers_of_groups(tmp_path: Path) -> None:
    assert run_ranks(3, different_groups, str(tmp_path)) == [["01"], ["01", "12"], ["12"]]
    into = {"w": torch.zeros(3)}
    dcp.load(into, checkpoint_id=str(tmp_path / "12"))
    assert into["w"].tolist() == [12.0] * 3


def no_descriptor_left(rank: int, folder: str) -> list[int]:
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder)  # imports what it needs
    group = dist.new_group([0, 1])
    dist.barrier(group)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
    try:
        dcp.save({"w": torch.ones(2)}, checkpoint_id=folder, process_group=group)
        failed = []
    except CheckpointException as error:
        failed = sorted(error.failures)
    resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder, process_group=group)
    return failed


def test_a_rank_that_has_no_descriptor_left_leaves_nobody_hanging(tmp_path: Path) -> None:
    assert run_ranks(2, no_descriptor_left, str(tmp_path)) == [[1], [1]]


def fork_beside_saves(rank: int, folder: str) -> list[int]:
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder)
    saved = dcp.async_save({"w": torch.ones(2)}, checkpoint_id=folder + "/async")
    child = multiprocessing.get_context("fork").Process(target=lambda: None)
    child.start()
    child.join(SOON)
    saved.result(timeout=1200)
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder)
    return [child.exitcode]


def test_a_forked_child_ends_and_its_parent_saves_on(tmp_path: Path) -> None:
    assert run_ranks(2, fork_beside_saves, str(tmp_path)) == [[0], [0]]


def both_kinds(rank: int, folder: str) -> list[float]:
    found = []
    for step in range(4):
        stager = {"async_stager": dcp.OverlappedStager()} if step % 2 else {}
        answer = dcp.async_save({"w": torch.full((4,), float(step))}, checkpoint_id=f"{folder}/{step}", **stager)
        (answer.upload_completion if step % 2 else answer).result(timeout=1200)
        into = {"w": torch.zeros(4)}
        dcp.load(into, checkpoint_id=f"{folder}/{step}")
        found.append(into["w"][0].item())
    return found


def test_overlapped_and_blocking_background_saves_can_be_mixed(tmp_path: Path) -> None:
    assert run_ranks(2, both_kinds, str(tmp_path)) == [[0.0, 1.0, 2.0, 3.0]] * 2
