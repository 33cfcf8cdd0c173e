"""Ranks of torch.distributed (gloo) that are killed in the middle of overwriting saves."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
import torch.distributed as dist
from programs import seed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import cairn.torch

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

RANKS = 4
DEADLINE = 20  # seconds that a collective may take
SOON = 300  # seconds after a death in which the others must have their error: gloo notices at its deadline, if not before
FILES = RANKS + 2


def tensor_of(version: int) -> torch.Tensor:
    return torch.arange(64 * 1024, dtype=torch.int64).reshape(256, 256) + version


def save_versions(rank: int, store: str, directory: str, first: int, saved: Any) -> None:
    """Overwrites the checkpoint again and again, and says which versions are there, until something fails."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=DEADLINE)
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    try:
        for version in range(first, first + 1000):
            state = {"w": distribute_tensor(tensor_of(version), mesh, [Shard(0)]), "version": version}
            cairn.torch.save(state, checkpoint_id=directory)
            saved[rank] = version
    except Exception as e:  # noqa: BLE001 - the others' death, told by gloo or by cairn
        print(f"rank {rank}: {type(e).__name__}: {e}")
        os._exit(3)
    os._exit(4)


def version_in(directory: Path) -> Optional[int]:
    """The version that is there, whole."""
    if not (directory / ".metadata").exists():
        return None
    state = {"w": torch.zeros(256, 256, dtype=torch.int64), "version": 0}
    cairn.torch.load(state, checkpoint_id=directory, no_dist=True)
    assert torch.equal(state["w"], tensor_of(state["version"])), f"not whole: {state['version']}"
    return state["version"]


def start(directory: Path, store: str, first: int, saved: Any) -> list[Any]:
    # Forked, because importing torch takes longer than most of this.
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=save_versions, args=(rank, store, str(directory), first, saved))
        for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.start()
    return ranks


def kill_one(directory: Path, first: int, draw: random.Random) -> int:
    """Returns the number that the next version may have."""
    saved = multiprocessing.Array("q", [0] * RANKS, lock=False)
    before = version_in(directory)
    with tempfile.TemporaryDirectory(prefix="cairn-ranks-") as meeting:
        ranks = start(directory, f"{meeting}/store", first, saved)
        until = time.monotonic() + 600
        while min(saved) == 0 and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.3)
        victim = draw.randrange(RANKS)
        os.kill(ranks[victim].pid, signal.SIGKILL)
        died = time.monotonic()
        for rank in ranks:
            rank.join(max(0.0, died + SOON - time.monotonic()))
        hung = [i for i, rank in enumerate(ranks) if rank.is_alive()]
        for i in hung:
            ranks[i].kill()
        assert hung == [], f"ranks that hang {SOON} s after rank {victim} died"
    assert min(saved) > 0, "the first save did not come through"
    ends = [rank.exitcode for i, rank in enumerate(ranks) if i != victim]
    # gloo itself ends a process that gets the next collective of a rank while it is in the one that failed.
    assert all(end in (3, -signal.SIGABRT) for end in ends), f"survivors did not end with an error: {ends}"
    found = version_in(directory)
    # The save that was under way may be there or not; what any rank said was there must be.
    assert found in (max(saved), max(saved) + 1), f"{found} is there, {list(saved)} were saved, {before} before"
    return max(saved) + 2


def kill(directory: Path, kills: int) -> None:
    draw = random.Random(seed())
    version = 1
    for _ in range(kills):
        version = kill_one(directory, version, draw)
    cairn.torch.save({"w": tensor_of(version), "version": version}, checkpoint_id=directory, no_dist=True)
    assert version_in(directory) == version
    assert len(list(directory.iterdir())) == 3, "something of a dead save is left"


@pytest.mark.slow
def test_killed_gloo_ranks_are_an_error_on_the_others(tmp_path: Path) -> None:
    kill(tmp_path / "run", 3)


@pytest.mark.slow
def test_many_killed_gloo_ranks_leave_the_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    kill(tmp_path / "run", int(os.environ.get("CAIRN_GLOO_KILLS", "100")))
