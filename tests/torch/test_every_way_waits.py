"""What must hold on every way in: what fails on one rank is known on all, who is alive is waited for, and nobody else
waits."""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import signal
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.checkpoint import CheckpointException

import matrix
from matrix import Together, Way, every_way, failure_of, numbers, together
from ranks import hard_limit

pytestmark = pytest.mark.filterwarnings("ignore")


class Trouble(Exception):
    """The caller's own."""


# --- acts of the caller's code in the middle of a save or load ---


class Part:
    """Stateful; acts when it is asked for its state."""

    def __init__(self, act: Optional[Callable[[], Any]], value: float) -> None:
        self.act, self.state = act, {"p": torch.full((3,), float(value))}

    def state_dict(self) -> dict[str, Any]:
        if self.act:
            self.act()
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class Acting:
    """An object that acts when it is pickled, and another time when it is unpickled."""

    def __init__(self, at_save: Optional[Callable[[], Any]] = None, at_load: str = "") -> None:
        self.at_save, self.at_load = at_save, at_load

    def __deepcopy__(self, memo: Any) -> Any:  # a stager's copy is another one of these
        return self

    def __reduce__(self) -> Any:
        if self.at_save:
            self.at_save()
        return unpickled, (self.at_load,)


AT_LOAD: dict[str, Callable[[], Any]] = {}


def unpickled(at_load: str) -> str:
    if at_load in AT_LOAD:
        AT_LOAD[at_load]()
    return "unpickled"


def acting(thing: Any, hook: str, act: Callable[[], Any]) -> Any:
    """The same object, or class, with an act before one of its hooks."""
    base = thing if isinstance(thing, type) else type(thing)

    def before(self: Any, *args: Any, **kwargs: Any) -> Any:
        act()
        return getattr(base, hook)(self, *args, **kwargs)

    changed = type(f"Acting{base.__name__}", (base,), {hook: before})
    if isinstance(thing, type):
        return changed
    thing.__class__ = changed
    return thing


# --- 11 ---


def fail() -> None:
    raise Trouble("not today")


def endless() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["again"] = made
    return made


def fail_in(way: Way, place: str, bad: bool, folder: str) -> None:
    act = fail if bad else (lambda: None)
    state = way.state(2)
    if place == "state_dict":
        way.save({**state, "stateful": Part(act, 2)}, folder)
    elif place == "pickling":
        way.save({**state, f"odd{dist.get_rank()}": Acting(act)}, folder)
    elif place == "flattening":
        way.save({**state, "endless": endless()} if bad else state, folder)
    elif place == "planning":
        way.save(state, folder, planner=acting(way.planner_to_save(), "create_local_plan", act)())
    elif place == "finishing the plan":
        way.save(state, folder, planner=acting(way.planner_to_save(), "finish_plan", act)())
    elif place == "writing":
        way.save(state, folder, storage_writer=acting(way.new_writer(folder), "write_data", act))
    elif place == "planning a load":
        way.load(state, folder, planner=acting(way.planner_to_load(), "create_local_plan", act)())
    elif place == "reading":
        way.load(state, folder, storage_reader=acting(way.new_reader(folder), "read_data", act))
    elif place == "unpickling":
        AT_LOAD["here"] = act
        way.load({**state, "odd": None}, folder + ".odd")
    else:
        assert place == "state_dict of a load"
        way.load({**state, "stateful": Part(act, 2)}, folder + ".odd")


OF_OBJECTS = ("pickling", "unpickling")
PLACES = (
    "state_dict", "flattening", "pickling", "planning", "finishing the plan", "writing", "planning a load", "reading", "unpickling",
    "state_dict of a load",
)  # fmt: skip


def fail_everywhere(way: Way, rank: int, folder: str) -> dict[str, Any]:
    """For each place what came of it, and what the checkpoint says then."""
    size = matrix.size_of_group()
    bad = rank == size - 1
    odd = {"odd": Acting(None, "here")} if way.objects else {}
    way.save({**way.state(1), **odd, "stateful": Part(None, 1)}, folder + ".odd")
    way.save(way.state(1), folder)
    found = {}
    for place in PLACES:
        if place in OF_OBJECTS and not way.objects:
            continue
        error = failure_of(lambda place=place: fail_in(way, place, bad, folder))
        failures = getattr(error, "failures", {})
        told = {each: (type(wrapped[0]).__name__, str(wrapped[0])[:9]) for each, wrapped in failures.items()}
        # Where stock raises it as it is: asking for a state is no step of a save, and nor is staging.
        as_it_is = place.startswith("state_dict") and size == 1
        as_it_is = as_it_is or (way.background and place in ("state_dict", "flattening", "pickling"))
        plain = type(error) in (Trouble, RecursionError) and bad and as_it_is
        found[place] = "plain" if plain else (isinstance(error, CheckpointException), told)
        dist.barrier(matrix.GROUP)
    found["left"] = numbers(way.load(way.state(0), folder))
    return found


@every_way("11 errors")
def test_what_fails_on_one_rank_is_raised_on_all(tmp_path: Path, way: Way) -> None:
    answers = together(way, 2, fail_everywhere, str(tmp_path / "id"))
    bad = len(answers) - 1
    expected = {place: (True, {bad: ("Trouble", "not today")}) for place in PLACES}
    expected["flattening"] = (True, {bad: ("RecursionError", "maximum r")})
    wrong = [
        (rank, place, found)
        for rank, answer in enumerate(answers)
        for place, found in answer.items()
        if place != "left" and found not in (expected[place], "plain")
    ]
    assert wrong == []
    for answer in answers:
        # A rank that saves for itself may have saved.
        assert answer["left"] == {1.0} or (way.save_options and len(answer["left"]) == 1), answer["left"]


# --- 12 ---

SILENCE = 2.0  # seconds: the time-out of the group
AT_ONCE = 5  # ways that are tried beside each other, for they only wait
WITH_A_WRITER = ("derived storage", "own write_data", "own storage", "Hugging Face")  # which is slow, too


def hold_the_gil(seconds: float) -> None:
    """As code in C does that has not let it go."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def take_long(way: Way, rank: int, folder: str, pause: float) -> float:
    bad = rank == matrix.size_of_group() - 1

    def wait() -> None:
        if bad:
            time.sleep(pause)

    def hold() -> None:
        if bad:
            hold_the_gil(pause)

    state = way.state(1)
    if way.objects:
        state = {**state, f"odd{rank}": Acting(hold, "here")}
    given: dict[str, Any] = {}
    if way.save_planner:
        given["planner"] = acting(way.planner_to_save(), "finish_plan", wait)()
    if way.name in WITH_A_WRITER:
        given["storage_writer"] = acting(way.new_writer(folder), "write_data", hold)
    began = time.monotonic()
    way.save({**state, "stateful": Part(wait, 1)}, folder, **given)
    took = time.monotonic() - began
    AT_LOAD["here"] = wait
    into = {**way.state(0), "stateful": Part(wait, 0)}
    if way.objects:
        into[f"odd{rank}"] = None
    way.load(into, folder)
    assert numbers(into) == {1} and into["stateful"].state["p"].tolist() == [1.0] * 3
    return took if bad else pause


@functools.lru_cache(maxsize=None)
def begun(first: int, folder: str) -> dict[str, Together]:
    """A few ways at once."""
    names = sorted(way for promise, way in matrix.TRIED if promise == "12 long")[first : first + AT_ONCE]
    return {
        name: Together(matrix.WAYS[name], 2, take_long, f"{folder}/{name}", 3.5, silence=SILENCE) for name in names
    }


@every_way("12 long")
def test_a_save_longer_than_the_groups_time_out_succeeds(tmp_path_factory: Any, way: Way) -> None:
    names = sorted(name for promise, name in matrix.TRIED if promise == "12 long")
    first = names.index(way.name) // AT_ONCE * AT_ONCE
    folder = str(tmp_path_factory.getbasetemp() / f"long{first}")
    assert min(begun(first, folder)[way.name].answers(hard_limit(180))) >= 3.5


@pytest.mark.slow
@pytest.mark.parametrize("silence, pause", [(3, 30), (30, 300)])
@pytest.mark.parametrize("name", ["default", "own plan step", "file for every item", "async thread"])
def test_a_save_far_longer_than_the_groups_time_out_succeeds(
    tmp_path: Path, name: str, silence: float, pause: float
) -> None:
    way = matrix.WAYS[name]  # a pause in the state_dict and one or more later: 60 s on 3 s, 10 minutes on 30 s
    limit = hard_limit(10 * pause)
    assert min(together(way, 2, take_long, str(tmp_path / "id"), pause, silence=silence, limit=limit)) >= pause


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_a_rank(way: Way, rank: int, folder: str) -> tuple[bool, float]:
    way.save(way.state(1), folder)
    dist.barrier(matrix.GROUP)
    act = die if rank == 1 else (lambda: None)
    began = time.monotonic()
    if way.objects:
        error = failure_of(lambda: way.save({**way.state(2), f"odd{rank}": Acting(act)}, folder))
    else:
        writer = acting(way.new_writer(folder), "write_data", act)
        error = failure_of(lambda: way.save(way.state(2), folder, storage_writer=writer))
    return error is not None, time.monotonic() - began


@every_way("12 killed")
def test_a_rank_that_is_killed_is_an_error_on_the_others(tmp_path: Path, way: Way) -> None:
    [(failed, seconds), died] = together(way, 2, lose_a_rank, str(tmp_path / "id"), dies=1)
    assert died is None
    # Ranks that save for themselves need nobody; the others hear that the connection broke, in seconds.
    assert failed or way.save_options == {"use_collectives": False}
    assert seconds < hard_limit(60)
    if failed and not way.save_options:
        assert numbers(way.load(way.state(0), tmp_path / "id")) == {1}


# --- 13 ---

STEPS = 3


def train_beside_saves(way: Way, rank: int, folder: str) -> None:
    way = way.in_background()
    size = matrix.size_of_group()
    saves = []
    for step in range(STEPS):
        saves.append(way.start(way.state(step + 1), f"{folder}/{step}"))
        for i in range(40):
            part = torch.tensor([float(i + rank)])
            dist.all_reduce(part, group=matrix.GROUP)
            assert part.item() == size * i + sum(range(size))
    for step, saved in enumerate(saves):
        saved.result(timeout=hard_limit())
        assert numbers(way.load(way.state(0), f"{folder}/{step}")) == {step + 1}


@every_way("13 beside")
def test_background_saves_do_not_mix_with_the_trainings_collectives(tmp_path: Path, way: Way) -> None:
    together(way, 2, train_beside_saves, str(tmp_path / "id"))


def in_use() -> tuple[int, int]:
    """Threads and descriptors."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def save_on_groups(way: Way, rank: int, folder: str, count: int) -> list[int]:
    way = way.in_background()

    def save_on(groups: int) -> None:
        for i in range(groups):
            group = dist.new_group([0, 1])
            way.save(way.state(i), f"{folder}/{i % 4}", process_group=group)
            dist.destroy_process_group(group)

    save_on(4)
    before = in_use()
    save_on(count)
    return [after - earlier for earlier, after in zip(before, in_use())]


@every_way("13 groups")
def test_background_saves_on_groups_leave_nothing(tmp_path: Path, way: Way) -> None:
    way = replace(way, subgroup=False)  # it saves on groups of its own here, as all do
    for threads, descriptors in together(way, 2, save_on_groups, str(tmp_path / "id"), 10):
        assert threads <= 4 and descriptors <= 4


@pytest.mark.slow
@every_way("13 groups")
def test_background_saves_on_a_hundred_groups_leave_nothing(tmp_path: Path, way: Way) -> None:
    limit = hard_limit(600)
    way = replace(way, subgroup=False)
    for threads, descriptors in together(way, 2, save_on_groups, str(tmp_path / "id"), 100, limit=limit):
        assert threads <= 4 and descriptors <= 4


# --- 14 ---


def fork_beside_a_save(way: Way, rank: int, folder: str) -> Any:
    """How a child ended that was forked while a save was under way."""
    way = way.in_background()
    way.start(way.state(1), folder).result(timeout=hard_limit())
    saved = way.start(way.state(2, large=torch.ones(4_000_000)), folder)
    child = multiprocessing.get_context("fork").Process(target=warnings.simplefilter, args=("ignore",))
    child.start()
    child.join(hard_limit())
    ended = child.exitcode
    child.kill()
    saved.result(timeout=hard_limit())
    return ended


@every_way("14 exit")
def test_a_forked_child_ends_while_a_save_is_under_way(tmp_path: Path, way: Way) -> None:
    ends = together(way, 2, fork_beside_a_save, str(tmp_path / "id"))
    assert ends == [0] * len(ends)


def train_and_die(way: Way, folder: str, worker: Any, go: Any) -> None:
    """Saves, has a worker forked in the middle of it, and is killed."""
    warnings.simplefilter("ignore")

    def fork_and_die() -> None:
        child = os.fork()
        if child == 0:
            go.recv_bytes()  # lives on, with all that it has inherited
            os._exit(0)
        worker.send(child)
        die()

    planner = way.planner_to_save()
    hook = "transform_object" if hasattr(planner, "transform_object") else "resolve_data"
    way.save(way.state(2), folder, planner=acting(planner, hook, fork_and_die)())


@every_way("14 lock")
def test_a_forked_worker_does_not_keep_the_lock_of_a_killed_trainer(tmp_path: Path, way: Way) -> None:
    folder = str(tmp_path / "id")
    way.save(way.state(1), folder)
    context = multiprocessing.get_context("fork")
    found, worker = context.Pipe(duplex=False)
    waits, go = context.Pipe(duplex=False)
    trainer = context.Process(target=train_and_die, args=(way, folder, worker, waits))
    trainer.start()
    until = time.monotonic() + hard_limit()
    while trainer.is_alive() and time.monotonic() < until:  # join() waits for the worker, too
        time.sleep(0.01)
    assert trainer.exitcode == -signal.SIGKILL and found.poll(), "the worker was never forked"
    os.kill(found.recv(), 0)  # it is alive
    try:
        assert numbers(way.load(way.state(0), folder)) == {1}
        # Nobody waits for ever: as a rank of its own, which has a limit.
        together(way, 1, save_and_look, folder)
    finally:
        go.send_bytes(b"go")


def save_and_look(way: Way, rank: int, folder: str) -> None:
    way.save(way.state(3), folder)
    assert numbers(way.load(way.state(0), folder)) == {3}
