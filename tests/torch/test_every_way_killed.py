"""A save that is killed at any instant leaves the old checkpoint or the new one, whole, on every way in."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs import seed

torch = pytest.importorskip("torch")

import torch.distributed as dist

from matrix import Way, dcp, every_way, numbers, stock
from ranks import hard_limit

pytestmark = pytest.mark.filterwarnings("ignore")

KILLS = 40
WITH_A_WORLD = ("rank-local", "subgroup")


def save_on_and_on(way: Way, folder: str, first: int, begun: Any, saved: Any) -> None:
    """Overwrites the checkpoint until it is killed, and says which version it has begun and which is there."""
    warnings.simplefilter("ignore")
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a test that is stopped leaves nobody saving
    torch.set_num_threads(1)
    if way.name in WITH_A_WORLD:
        dist.init_process_group("gloo", init_method=f"file://{folder}.{os.getpid()}", rank=0, world_size=1)
    if way.installed:
        dcp.install()  # once, as people do
    more = {"process_group": dist.new_group([0])} if way.subgroup else {}
    for number in range(first, first + 10_000):
        begun.value = number
        way.save(way.state(number), folder, **more)
        saved.value = number


class Victims:
    """Saves to kill, and how long one takes."""

    def __init__(self, way: Way, folder: Path) -> None:
        self.context = multiprocessing.get_context("fork")
        self.way, self.folder = way, folder
        # Without locks: whoever is killed would keep one for ever.
        self.begun, self.saved = (self.context.Value("i", 0, lock=False) for _ in range(2))
        self.seconds = 0.02  # what a save takes, about

    @contextmanager
    def saving(self) -> Iterator[Any]:
        first = self.saved.value + 1
        arguments = (self.way, str(self.folder), first, self.begun, self.saved)
        process = self.context.Process(target=save_on_and_on, args=arguments)
        process.start()
        try:
            self._wait_until(self.begun, first + 1, process)  # the first one is slower than the rest
            began = time.monotonic()
            self._wait_until(self.begun, first + 2, process)
            self.seconds = 0.8 * self.seconds + 0.2 * (time.monotonic() - began)
            yield process
        finally:
            process.kill()
            process.join()
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it may have started
            except ProcessLookupError:
                pass

    def _wait_until(self, value: Any, number: int, process: Any) -> None:
        until = time.monotonic() + hard_limit()
        while value.value < number:
            assert process.is_alive(), "a save failed: its message is above"
            assert time.monotonic() < until, "a save hangs"
            time.sleep(0.0005)

    def stored(self) -> int:
        """The version that is there, by cairn and by stock; whole."""
        found = []
        for side in (dcp, stock):
            found.append(numbers(self.way.load(self.way.state(-1), self.folder, side)))
        said = f"cairn reads {found[0]}, stock {found[1]}"
        assert len(found[0]) == len(found[1]) == 1, said
        ours, theirs = int(found[0].pop()), int(found[1].pop())
        # Of ranks that save for themselves cairn sees a set as soon as all parts are there; stock, when each has its
        # last name.
        assert ours == theirs or (self.way.name == "rank-local" and theirs == ours - 1), said
        return ours


def kill(way: Way, folder: Path, kills: int) -> str:
    draw = random.Random(seed())
    victims = Victims(way, folder)
    way.save(way.state(0), folder)
    before = 0
    for done in range(kills):
        with victims.saving() as process:
            # Anywhere in a save; earlier when too few were, for half of the kills are to fall before the commit.
            time.sleep(draw.uniform(0, 1.1 if before > 0.6 * done else 0.25) * victims.seconds)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        begun, saved, found = victims.begun.value, victims.saved.value, victims.stored()
        assert found in (saved, saved + 1) and found <= begun, (found, saved, begun)
        if begun > found:  # killed within a save that is not there
            before += 1
        victims.saved.value = found
    assert 2 * before >= kills, f"{before} of {kills} kills before the commit"
    way.save(way.state(-2), folder)
    assert victims.stored() == -2
    return f"{way.name}: {kills} kills, {before} before the commit"


@every_way("5 kills")
def test_a_killed_save_leaves_the_old_one_or_the_new_one(tmp_path: Path, way: Way, record_property: Any) -> None:
    record_property("said", kill(way, tmp_path / "id", KILLS))


@pytest.mark.slow
@every_way("5 kills")
def test_many_killed_saves_leave_the_old_one_or_the_new_one(tmp_path: Path, way: Way, record_property: Any) -> None:
    record_property("said", kill(way, tmp_path / "id", int(os.environ.get("CAIRN_WAY_KILLS", "2000"))))
