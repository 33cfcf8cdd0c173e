"""Checkpoints that each rank saves for itself (use_collectives=False): a rank gets back what is its own."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

import cairn
import cairn.torch as cairn_dcp
from ranks import run_ranks

SIDES = {"stock": stock, "cairn": cairn_dcp}


class OwnLoadPlanner(DefaultLoadPlanner):
    """A planner of the user's, so that cairn goes torch's way, hook by hook."""

    def resolve_tensor(self, read_item: Any) -> Any:
        return super().resolve_tensor(read_item)


class OwnSavePlanner(DefaultSavePlanner):
    def transform_object(self, write_item: Any, object: Any) -> Any:
        return super().transform_object(write_item, object)

    def create_local_plan(self) -> Any:
        return super().create_local_plan()


def _state(rank: int, version: int = 0) -> dict[str, Any]:
    """One name, other shapes, other values, other objects; and a tensor that only one of the ranks has."""
    state: dict[str, Any] = {
        "same": torch.full((4,), float(10 * version + rank)),
        "shape": torch.arange(3.0 + rank) + 100 * rank + version,
        "object": ("rank", rank, "version", version, "x" * rank),
        "kind": torch.ones(2) * version if rank == 0 else "text",
    }
    state[f"only.{rank}"] = torch.full((2, 2), float(rank))
    return state


def _empty(rank: int) -> dict[str, Any]:
    return {key: torch.zeros_like(v) if torch.is_tensor(v) else None for key, v in _state(rank).items()}


def _require(state: dict[str, Any], rank: int, version: int = 0) -> None:
    for key, wanted in _state(rank, version).items():
        found = state[key]
        assert torch.equal(found, wanted) if torch.is_tensor(wanted) else found == wanted, (rank, key, found, wanted)


def _save(rank: int, folder: str, side: str, version: int = 0, collective: bool = False, own: bool = False) -> None:
    warnings.simplefilter("ignore")
    state = {"same": torch.full((4,), float(version))} if collective else _state(rank, version)
    planner = OwnSavePlanner() if own else None
    SIDES[side].save(state, checkpoint_id=folder, use_collectives=collective, planner=planner)


def _load(rank: int, folder: str, side: str, version: int = 0, own: bool = False) -> None:
    warnings.simplefilter("ignore")
    state = _empty(rank)
    SIDES[side].load(state, checkpoint_id=folder, planner=OwnLoadPlanner() if own else None)
    _require(state, rank, version)


@pytest.mark.parametrize("saver, loader", [("stock", "stock"), ("stock", "cairn"), ("cairn", "stock"), ("cairn", "cairn")])
def test_each_rank_gets_its_own(saver: str, loader: str, tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), saver)
    run_ranks(2, _load, str(tmp_path), loader)


@pytest.mark.parametrize("saver", ["stock", "cairn"])
def test_each_rank_gets_its_own_through_a_planner_of_the_users(saver: str, tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), saver, 0, False, saver == "cairn")
    run_ranks(2, _load, str(tmp_path), "cairn", 0, True)


def _read_once(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")

    class Once(cairn_dcp.FileSystemReader):
        def engine_options(self) -> dict[str, Any]:
            return {"read_once": True}

    state = _empty(rank)
    cairn_dcp._native.load(state, Once(folder), None, 0, False, None, {})
    _require(state, rank)


def test_ranks_that_read_for_each_other_do_not_where_each_has_its_own(tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), "cairn")
    run_ranks(2, _read_once, str(tmp_path))


def _refused(rank: int, folder: str) -> str:
    warnings.simplefilter("ignore")
    with pytest.raises(Exception) as raised:
        cairn_dcp.load({"same": torch.zeros(4)}, checkpoint_id=folder)
    return str(raised.value)


def test_a_rank_that_saved_nothing_is_told_so(tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), "cairn")
    for message in run_ranks(3, _refused, str(tmp_path)):
        assert "there is no __2.metadata" in message and "use_collectives=False" in message, message
        assert "each of 2 ranks" in message


def _save_halves(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (2,))
    whole = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    cairn_dcp.save({"w": whole, "r": torch.full((2,), float(rank))}, checkpoint_id=folder, use_collectives=False)


def test_one_rank_alone_has_the_others_fill_in(tmp_path: Path) -> None:
    run_ranks(2, _save_halves, str(tmp_path))
    state = {"w": torch.zeros(8), "r": torch.zeros(2)}
    cairn_dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(state["w"], torch.arange(8.0)) and torch.equal(state["r"], torch.zeros(2))


def _files(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder)}


@pytest.mark.parametrize("first", ["stock", "cairn"])
@pytest.mark.parametrize("own", [False, True])
def test_a_save_of_single_ranks_takes_the_place_of_one_of_all(first: str, own: bool, tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), first, 1, True)
    before = _files(tmp_path)
    run_ranks(2, _save, str(tmp_path), "cairn", 2, False, own)
    run_ranks(2, _load, str(tmp_path), "cairn", 2)
    run_ranks(2, _load, str(tmp_path), "stock", 2)
    # A rank that has nothing to write leaves an empty file in stock torch, which nothing names.
    assert before & _files(tmp_path) <= {"__1_0.distcp"}


def test_until_every_rank_has_saved_the_old_one_loads(tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), "cairn", 1, True)
    _save_alone(tmp_path, 0, 2)
    assert (tmp_path / "__0.metadata").exists()
    state = {"same": torch.zeros(4)}
    cairn_dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(state["same"], torch.ones(4))


def _save_alone(folder: Path, rank: int, ranks: int) -> None:
    """A rank that saves, nothing but its metadata, and knows of no other."""
    engine = cairn._engine.Writer({"files": cairn._engine.Files(cairn_dcp.FileSystemWriter(folder).fs, folder)})
    engine.set_up(cairn._engine.WriterRole(f"{rank + 1:032x}", rank, ranks, rank == 0, False))
    engine.write([], object(), object())
    engine.finish([], None, [([], b"")], None)


@pytest.mark.parametrize("first", ["stock", "cairn"])
def test_until_every_rank_has_saved_the_earlier_ones_of_single_ranks_load(
    first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_ranks(2, _save, str(tmp_path), first, 1)
    _save_alone(tmp_path, 1, 2)
    run_ranks(2, _load, str(tmp_path), "cairn", 1)
    run_ranks(2, _load, str(tmp_path), "stock", 1)
    _load(0, str(tmp_path), "cairn", 1)
    assert any("not complete" in record.message and "rank 0" in record.message for record in caplog.records)
    _save_alone(tmp_path, 0, 2)
    with pytest.raises(Exception, match="same"):
        _load(0, str(tmp_path), "cairn", 1)
    assert {name for name in _files(tmp_path) if ".metadata" in name} == {"__0.metadata", "__1.metadata"}


@pytest.mark.parametrize("first", ["stock", "cairn"])
def test_a_save_by_fewer_ranks_leaves_nothing_of_the_others(first: str, tmp_path: Path) -> None:
    run_ranks(3, _save, str(tmp_path), first, 1)
    before = _files(tmp_path)
    run_ranks(2, _save, str(tmp_path), "cairn", 2)
    run_ranks(2, _load, str(tmp_path), "cairn", 2)
    run_ranks(2, _load, str(tmp_path), "stock", 2)
    assert before & _files(tmp_path) == {"__0.metadata", "__1.metadata"}


@pytest.mark.parametrize("first", ["stock", "cairn"])
def test_a_save_of_all_ranks_takes_the_place_of_those_of_single_ones(first: str, tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), first, 1, False)
    before = _files(tmp_path)
    run_ranks(2, _save, str(tmp_path), "cairn", 2, True)
    assert not before & _files(tmp_path)
    state = {"same": torch.zeros(4)}
    cairn_dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(state["same"], torch.full((4,), 2.0))


def _may_not_overwrite(rank: int, folder: str, collective: bool) -> str:
    warnings.simplefilter("ignore")
    writer = cairn_dcp.FileSystemWriter(folder, overwrite=False)
    with pytest.raises(Exception, match="Checkpoint already exists") as raised:
        cairn_dcp.save(_state(rank), storage_writer=writer, use_collectives=collective)
    return str(raised.value)


@pytest.mark.parametrize("collective", [False, True])
def test_one_way_of_saving_does_not_overwrite_the_other_unasked(collective: bool, tmp_path: Path) -> None:
    run_ranks(2, _save, str(tmp_path), "cairn", 1, not collective)
    before = _files(tmp_path)
    run_ranks(2, _may_not_overwrite, str(tmp_path), collective)
    assert _files(tmp_path) == before
