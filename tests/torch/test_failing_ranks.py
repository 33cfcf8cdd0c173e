"""What fails on one rank is known on all of them, soon and by its own name; who is alive is waited for."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import time
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")

SOON = 300.0  # seconds; the process group itself would wait for 30 minutes


class Trouble(Exception):
    """The caller's own."""


class Part:
    """Stateful, and in trouble on one rank."""

    def __init__(self, bad: bool) -> None:
        self.bad = bad

    def state_dict(self) -> dict[str, Any]:
        if self.bad:
            raise Trouble("no state today")
        return {"w": torch.ones(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Poison:
    """Can be saved and not be loaded on a rank that says so."""

    refuse = False

    def __reduce__(self) -> Any:
        return _unpoison, ()


def _unpoison() -> Poison:
    if Poison.refuse:
        raise Trouble("poison")
    return Poison()


class OwnPlanner(dcp.DefaultSavePlanner):
    def create_local_plan(self):
        return super().create_local_plan()


class OwnLoadPlanner(dcp.DefaultLoadPlanner):
    def create_local_plan(self):
        return super().create_local_plan()


class Unpicklable:
    def __reduce__(self) -> Any:
        raise Trouble("not for files")


def failing(rank: int, folder: str, what: str) -> tuple[str, list[int], str, float]:
    bad = rank == 1
    acts: dict[str, Callable[[], Any]] = {
        "state_dict": lambda: dcp.save({"part": Part(bad)}, checkpoint_id=folder),
        "own planner": lambda: dcp.save({"part": Part(bad)}, checkpoint_id=folder, planner=OwnPlanner()),
        "flatten": lambda: dcp.save({"d": cyclic()} if bad else {"d": {"x": 1}}, checkpoint_id=folder),
        "pickle": lambda: dcp.save({f"o{rank}": Unpicklable() if bad else 1}, checkpoint_id=folder),
        "load": lambda: dcp.load({"part": Part(bad)}, checkpoint_id=folder + "/good"),
        "own load": lambda: dcp.load({"part": Part(bad)}, checkpoint_id=folder + "/good", planner=OwnLoadPlanner()),
        "unpickle": lambda: dcp.load({"p": None}, checkpoint_id=folder + "/poison"),
        "rank-local": lambda: dcp.save({"part": Part(bad)}, checkpoint_id=folder, use_collectives=False),
        "async": lambda: dcp.async_save({"part": Part(bad)}, checkpoint_id=folder).result(),
        "async, own planner": lambda: dcp.async_save(
            {"part": Part(bad)}, checkpoint_id=folder, planner=OwnPlanner()
        ).result(),
    }
    dcp.save({"part": Part(False)}, checkpoint_id=folder + "/good")
    dcp.save({"p": Poison()}, checkpoint_id=folder + "/poison")
    Poison.refuse = bad
    begin = time.monotonic()
    try:
        acts[what]()
    except CheckpointException as error:
        failures = {each: type(wrapped[0]).__name__ for each, wrapped in error.failures.items()}
        return "CheckpointException", list(failures), failures.get(1, ""), time.monotonic() - begin
    except BaseException as error:  # noqa: BLE001
        return type(error).__name__, [], "", time.monotonic() - begin
    return "success", [], "", time.monotonic() - begin


def cyclic() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["again"] = made
    return made


EXPECTED = {"flatten": "RecursionError"}


@pytest.mark.parametrize(
    "what",
    ["state_dict", "own planner", "flatten", "pickle", "load", "own load", "unpickle", "rank-local", "async",
     "async, own planner"],
)
def test_what_fails_on_one_rank_fails_on_all_by_its_own_name(tmp_path: Path, what: str) -> None:
    for rank, (kind, ranks, cause, seconds) in enumerate(run_ranks(2, failing, str(tmp_path), what)):
        if what.startswith("async") and rank == 1:
            assert kind in ("Trouble", "CheckpointException")  # raised by the call itself
        else:
            assert (kind, ranks, cause) == ("CheckpointException", [1], EXPECTED.get(what, "Trouble"))
        assert seconds < SOON


def slow_save(rank: int, folder: str) -> str:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=3))
    state = {f"slow{rank}": Slow() if rank == 1 else 1, "w": torch.ones(4)}
    begin = time.monotonic()
    dcp.save(state, checkpoint_id=folder, process_group=group)
    assert time.monotonic() - begin > 6
    into = {f"slow{rank}": SlowToLoad() if rank == 1 else 0, "w": torch.zeros(4)}
    dcp.load(into, checkpoint_id=folder, process_group=group)
    return str(into["w"].tolist())


class Slow:
    def __reduce__(self) -> Any:
        for _ in range(65):
            time.sleep(0.1)
        return int, (1,)


class SlowToLoad:
    pass


def test_a_save_that_takes_longer_than_the_groups_timeout_succeeds_while_all_are_alive(tmp_path: Path) -> None:
    assert run_ranks(2, slow_save, str(tmp_path)) == ["[1.0, 1.0, 1.0, 1.0]"] * 2


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


def train_beside_saves(rank: int, folder: str) -> float:
    total = torch.zeros(1)
    saved: list[Future] = []
    for step in range(4):
        saved.append(
            dcp.async_save({"w": torch.full((4,), float(step))}, checkpoint_id=f"{folder}/{step}", planner=OwnPlanner())
        )
        for i in range(50):
            part = torch.tensor([float(i + rank)])
            dist.all_reduce(part)
            total += part
    for each in saved:
        each.result(timeout=1200)
    return total.item()


def test_background_saves_with_an_own_planner_do_not_mix_with_the_trainings_collectives(tmp_path: Path) -> None:
    expected = 4 * sum(2.0 * i + 1 for i in range(50))
    assert run_ranks(2, train_beside_saves, str(tmp_path)) == [expected, expected]
    into = {"w": torch.zeros(4)}
    dcp.load(into, checkpoint_id=str(tmp_path / "3"))
    assert torch.equal(into["w"], torch.full((4,), 3.0))


def many_groups(rank: int, folder: str, batches: int) -> tuple[int, int]:
    def counted() -> tuple[int, int]:
        return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))

    def save_on(batch: int) -> None:
        groups = [dist.new_group([0, 1]) for _ in range(10)]
        for i, group in enumerate(groups):
            state = {"w": torch.full((4,), float(i))}
            dcp.async_save(state, checkpoint_id=f"{folder}/{i}", process_group=group).result()
            dcp.save(state, checkpoint_id=f"{folder}/{i}", process_group=group)
        for group in groups:
            dist.destroy_process_group(group)

    save_on(0)
    before = settled(counted)
    for batch in range(batches):
        save_on(batch)
    after = settled(counted)
    return after[0] - before[0], after[1] - before[1]


def settled(counted: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """When threads that are about to end have ended."""
    for _ in range(20):
        time.sleep(0.1)
        last = counted()
    return last


def test_saves_on_a_hundred_groups_leave_no_threads_and_descriptors(tmp_path: Path) -> None:
    for threads, descriptors in run_ranks(2, many_groups, str(tmp_path), 10):
        assert threads <= 2 and descriptors <= 4


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
