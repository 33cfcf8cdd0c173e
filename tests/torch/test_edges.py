"""What happens at the edges of a save or load: one that is refused, errors of odd kinds, hooks that rely on their thread."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.staging import BlockingAsyncStager

import cairn
import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")


def state(number: float) -> dict[str, Any]:
    return {"w": torch.full((4,), float(number))}


class OwnPlanner(dcp.DefaultSavePlanner):
    def create_local_plan(self):
        return super().create_local_plan()


# --- background saves ---


def _refused_and_good(rank: int, folder: str) -> list[float]:
    Path(folder, f"file{rank}").touch()
    for number in range(20):
        bad = dcp.async_save(state(-1), checkpoint_id=f"{folder}/file0/x")
        good = dcp.async_save(state(number), checkpoint_id=f"{folder}/good")
        with pytest.raises(dcp.CheckpointException):
            bad.result(timeout=600)
        good.result(timeout=600)
    into = state(0)
    dcp.load(into, checkpoint_id=f"{folder}/good")
    return into["w"].tolist()


@pytest.mark.parametrize("size", [1, 2])
def test_a_failed_background_save_is_its_own_futures_business(tmp_path: Path, size: int) -> None:
    assert run_ranks(size, _refused_and_good, str(tmp_path)) == [[19.0] * 4] * size


class Doubling(dcp.FileSystemWriter):
    def stage(self, state_dict):
        return {name: 2 * value for name, value in super().stage(state_dict).items()}


def test_a_writer_that_stages_by_itself_is_asked(tmp_path: Path) -> None:
    dcp.async_save(state(1), storage_writer=Doubling(tmp_path)).result()
    into = state(0)
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["w"].tolist() == [2.0] * 4


@pytest.mark.parametrize("planner", [None, "own"])
def test_an_overlapped_save_answers_with_two_futures(tmp_path: Path, planner: Any) -> None:
    given = {"planner": OwnPlanner()} if planner else {}
    answer = dcp.async_save(state(1), checkpoint_id=tmp_path, async_stager=dcp.OverlappedStager(), **given)
    answer.staging_completion.result()
    answer.upload_completion.result()


# --- hooks ---


def test_hooks_are_called_in_the_callers_thread(tmp_path: Path) -> None:
    seen: set[tuple[str, int, bool]] = set()

    def note(name: str) -> None:
        seen.add((name, threading.get_ident(), torch.is_grad_enabled()))

    class Saves(OwnPlanner):
        def resolve_data(self, write_item):
            note("resolve_data")
            return super().resolve_data(write_item)

    class Transforms(dcp.DefaultSavePlanner):
        def transform_object(self, write_item, object):
            note("transform_object")
            return super().transform_object(write_item, object)

    class Loads(dcp.DefaultLoadPlanner):
        def resolve_tensor(self, read_item):
            note("resolve_tensor")
            return super().resolve_tensor(read_item)

        def commit_tensor(self, read_item, tensor):
            note("commit_tensor")
            self.state_dict[read_item.dest_index.fqn].mul_(2)

    weight = torch.nn.Parameter(torch.ones(4))
    with torch.no_grad():
        dcp.save({"w": weight, "step": 1}, checkpoint_id=tmp_path, planner=Saves())
        dcp.save({"w": weight, "step": 1}, checkpoint_id=tmp_path, planner=Transforms())
        dcp.load({"w": weight}, checkpoint_id=tmp_path, planner=Loads())
    assert weight.tolist() == [2.0] * 4
    names = ("resolve_data", "transform_object", "resolve_tensor", "commit_tensor")
    assert seen == {(name, threading.get_ident(), False) for name in names}


# --- errors ---


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS: dict[str, Any] = {
    "surrogates": lambda: ValueError("bad " + os.fsdecode(b"/tmp/\xff")),
    "unspeakable": lambda: Unspeakable(),
    "cairn's": lambda: cairn.open("/nowhere"),
    "long": lambda: ValueError("x" * 100_000),
    "a failed load": lambda: dcp.load(state(0), checkpoint_id="/nowhere"),
}


def _raises(kind: str) -> None:
    raise ERRORS[kind]()


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_the_callers_code_stays_what_it_is(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BaseException) as meant:  # noqa: PT011
        _raises(kind)

    class Planner(OwnPlanner):
        def create_local_plan(self):
            _raises(kind)

    with pytest.raises(stock.CheckpointException) as raised:
        dcp.save(state(1), checkpoint_id=tmp_path, planner=Planner())
    [(found, _)] = raised.value.failures.values()
    if kind == "unspeakable":
        assert "Unspeakable" in type(found).__name__ + Exception.__str__(found)
    elif kind == "long":
        assert str(found).startswith("ValueError: xxx")
    else:
        assert type(found) is type(meant.value)
        assert str(found).splitlines()[0] == str(meant.value).splitlines()[0]


def _fails_to_load() -> None:
    dcp.load(state(0), checkpoint_id="/nowhere")


def test_a_failure_can_leave_its_process(tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointError) as raised:
        _fails_to_load()
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) and again.code == "not_found" and list(again.failures) == [0]
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        with pytest.raises(dcp.CheckpointError):
            pool.submit(_fails_to_load).result(timeout=600)


# --- metadata ---


def _metadata_of_a_save(rank: int, folder: str) -> list[str]:
    writer = dcp.HuggingFaceStorageWriter(folder, save_distributed=True)
    saved = dcp.save({f"w{rank}": torch.ones(3)}, storage_writer=writer)
    return sorted(saved.state_dict_metadata)


def test_every_rank_gets_the_metadata_of_a_hugging_face_save(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    assert run_ranks(2, _metadata_of_a_save, str(tmp_path)) == [["w0", "w1"]] * 2


def test_a_reader_reads_anew_when_a_load_is_over(tmp_path: Path) -> None:
    class Loads(dcp.DefaultLoadPlanner):
        def create_local_plan(self):
            return super().create_local_plan()

    reader = dcp.FileSystemReader(tmp_path)
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    dcp.load({"a": torch.zeros(2)}, storage_reader=reader, planner=Loads())
    dcp.save({"b": torch.ones(2)}, checkpoint_id=tmp_path)
    assert list(reader.read_metadata().state_dict_metadata) == ["b"]


def test_a_stager_of_the_users_is_asked_all_the_same(tmp_path: Path) -> None:
    class Doubles(BlockingAsyncStager):
        def stage(self, state_dict):
            return {name: 2 * value for name, value in super().stage(state_dict).items()}

    dcp.async_save(state(1), checkpoint_id=tmp_path, async_stager=Doubles(False)).result()
    into = state(0)
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["w"].tolist() == [2.0] * 4
