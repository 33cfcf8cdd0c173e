"""Saves and loads with code of the caller's in them: the engine's steps call it, in the thread of whoever saves."""

import contextlib
import gc
import threading
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

import cairn.torch as dcp

pytestmark = pytest.mark.filterwarnings("ignore")

STATE = {"a": torch.arange(12.0).view(3, 4), "b": {"c": torch.ones(3), "step": 7}}


class Watched(dcp.DefaultSavePlanner):
    """Says in which thread its steps are called, and fails in one of them."""

    def __init__(self, fails_in: str = "", error: BaseException | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, threading.Thread]] = []
        self.fails_in = fails_in
        self.error = error

    def _called(self, name: str) -> None:
        self.calls.append((name, threading.current_thread()))
        if name == self.fails_in and self.error is not None:
            raise self.error

    def set_up_planner(self, *args, **kwargs):
        self._called("set_up_planner")
        super().set_up_planner(*args, **kwargs)

    def create_local_plan(self):
        self._called("create_local_plan")
        return super().create_local_plan()

    def create_global_plan(self, all_plans):
        self._called("create_global_plan")
        return super().create_global_plan(all_plans)

    def finish_plan(self, new_plan):
        self._called("finish_plan")
        return super().finish_plan(new_plan)


STEPS = ["set_up_planner", "create_local_plan", "create_global_plan", "finish_plan"]


def loaded(path: Path) -> dict:
    state = {"a": torch.zeros(3, 4), "b": {"c": torch.zeros(3), "step": 0}}
    dcp.load(state, checkpoint_id=path)
    return state


def test_steps_run_where_the_caller_is_in_order(tmp_path: Path) -> None:
    planner = Watched()
    dcp.save(STATE, checkpoint_id=tmp_path, planner=planner)
    assert [name for name, _ in planner.calls] == STEPS
    assert {thread for _, thread in planner.calls} == {threading.current_thread()}
    assert torch.equal(loaded(tmp_path)["a"], STATE["a"])


@pytest.mark.parametrize("step", STEPS)
def test_what_a_step_raises_is_kept(tmp_path: Path, step: str) -> None:
    dcp.save(STATE, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException) as caught:
        dcp.save({**STATE, "a": STATE["a"] + 1}, checkpoint_id=tmp_path, planner=Watched(step, KeyError("mine")))
    error, _ = caught.value.failures[0]
    assert type(error) is KeyError
    assert error.args == ("mine",)
    assert torch.equal(loaded(tmp_path)["a"], STATE["a"])


def test_an_interrupt_in_a_step_is_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        dcp.save(STATE, checkpoint_id=tmp_path, planner=Watched("finish_plan", KeyboardInterrupt()))
    assert not (tmp_path / ".metadata").exists()


class Scratch(dcp.DefaultSavePlanner):
    """Gives every tensor in the same memory."""

    memory = torch.empty(4096)

    def create_local_plan(self):  # a step of its own: the hooks are called for a plan of Python's
        return super().create_local_plan()

    def transform_object(self, write_item, object):
        made = super().transform_object(write_item, object)
        return self.memory.copy_(made) if isinstance(made, torch.Tensor) else made


def test_a_hook_may_use_its_memory_again(tmp_path: Path) -> None:
    state = {str(i): torch.full((4096,), float(i)) for i in range(200)}
    writer = dcp.FileSystemWriter(tmp_path, thread_count=8)
    dcp.save(state, storage_writer=writer, planner=Scratch())
    read = {name: torch.zeros(4096) for name in state}
    dcp.load(read, checkpoint_id=tmp_path)
    assert all(torch.equal(read[name], state[name]) for name in state)


class ScratchToLoad(dcp.DefaultLoadPlanner):
    """Takes every tensor in the same memory, and brings it home when it is told to."""

    memory = torch.zeros(64)

    def resolve_tensor(self, read_item):
        return self.memory

    def commit_tensor(self, read_item, tensor):
        super().resolve_tensor(read_item).copy_(tensor)


def test_a_planner_may_take_all_tensors_in_one_memory(tmp_path: Path) -> None:
    state = {str(i): torch.full((64,), float(i)) for i in range(500)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path, thread_count=4))
    read = {name: torch.zeros(64) for name in state}
    dcp.load(read, checkpoint_id=tmp_path, planner=ScratchToLoad())
    assert all(torch.equal(read[name], state[name]) for name in state)


class Counted(dcp.DefaultSavePlanner):
    """Doubles some tensors, leaves others as they are, and fails at one of them."""

    def __init__(self, fails_at: str = "", is_open: bool = False) -> None:
        super().__init__()
        self.calls: list[tuple[str, threading.Thread]] = []
        self.fails_at = fails_at
        if is_open:
            self.resolve_data = super().resolve_data  # of the object's own: then plans are Python's

    def transform_object(self, write_item, object):
        name = write_item.index.fqn
        self.calls.append((name, threading.current_thread()))
        if name == self.fails_at:
            raise LookupError(f"no {name} today")
        return object * 2 if isinstance(object, torch.Tensor) and int(name) % 3 == 0 else object


@pytest.mark.parametrize("is_open", [False, True], ids=["native", "open"])
def test_hooks_are_called_once_for_each_tensor_where_the_caller_is(tmp_path: Path, is_open: bool) -> None:
    state = {str(i): torch.full((5,), float(i)) for i in range(300)}
    planner = Counted(is_open=is_open)
    dcp.save(state, checkpoint_id=tmp_path, planner=planner)
    assert dcp.last_report()["way"] == ("open" if is_open else "native")
    assert sorted(name for name, _ in planner.calls) == sorted(state)
    assert {thread for _, thread in planner.calls} == {threading.current_thread()}
    read = {name: torch.zeros(5) for name in state}
    dcp.load(read, checkpoint_id=tmp_path)
    for name, tensor in state.items():
        assert torch.equal(read[name], tensor * 2 if int(name) % 3 == 0 else tensor)


@pytest.mark.parametrize("is_open", [False, True], ids=["native", "open"])
def test_a_hook_that_fails_is_told_and_nothing_is_there(tmp_path: Path, is_open: bool) -> None:
    state = {str(i): torch.full((5,), float(i)) for i in range(300)}
    with pytest.raises(CheckpointException) as failed:
        dcp.save(state, checkpoint_id=tmp_path / "c", planner=Counted("17", is_open))
    assert isinstance(failed.value.failures[0][0], LookupError)
    assert not (tmp_path / "c" / ".metadata").exists()


def test_python_collects_cycles_after_a_save_as_before(tmp_path: Path) -> None:
    planner = Watched("create_local_plan", ValueError("not today"))
    for make in (Watched, lambda: planner):
        with contextlib.suppress(CheckpointException):
            dcp.save(STATE, checkpoint_id=tmp_path, planner=make())
        assert gc.isenabled()
    gc.disable()
    try:
        dcp.save(STATE, checkpoint_id=tmp_path, planner=Watched())
        assert not gc.isenabled()
    finally:
        gc.enable()
