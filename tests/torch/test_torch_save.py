"""A torch.save file into sharded states: BroadcastingTorchSaveReader and DynamicMetaLoadPlanner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.tensor import DTensor, Shard, init_device_mesh, zeros

import cairn.torch
from cairn.torch.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner

WEIGHT = torch.arange(70, dtype=torch.bfloat16).reshape(10, 7)
STATE = {
    "model": {"w": WEIGHT, "b": torch.arange(5), "scalar": torch.tensor(2.5)},
    "step": 7,
    "notes": ["a", "b"],
    "kept": torch.Size([1, 2]),
}


class Planner(DynamicMetaLoadPlanner):
    """A user's, so that the load is open."""


def load_sharded(rank: int, path: str, direct: bool, planner: Any) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = {
        "w": zeros(10, 7, dtype=torch.bfloat16, device_mesh=mesh, placements=[Shard(0)]),
        "b": torch.zeros(5, dtype=torch.float32),  # of another dtype
        "scalar": torch.tensor(0.0),
    }
    state: dict[str, Any] = {"model": model, "step": 0, "notes": None, "kept": None}
    reader = BroadcastingTorchSaveReader(path, direct=direct)
    cairn.torch.load(state, storage_reader=reader, planner=planner())
    assert isinstance(model["w"], DTensor) and torch.equal(model["w"].full_tensor(), WEIGHT)
    assert model["b"].tolist() == [0, 1, 2, 3, 4] and model["scalar"].item() == 2.5
    assert (state["step"], state["notes"], state["kept"]) == (7, ["a", "b"], torch.Size([1, 2]))
    assert cairn.torch.last_report()["way"] == ("open" if planner is Planner else "native")


@pytest.mark.parametrize("planner", [DynamicMetaLoadPlanner, cairn.torch.DefaultLoadPlanner, Planner])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_one_file_reaches_any_number_of_ranks(tmp_path: Path, ranks: int, direct: bool, planner: Any) -> None:
    torch.save(STATE, tmp_path / "weights.pt")
    run_ranks(ranks, load_sharded, str(tmp_path / "weights.pt"), direct, planner)


def load_unlike(rank: int, path: str, planner: Any) -> None:
    state: dict[str, Any] = {}
    if rank > 0:
        state = {"model": {"b": torch.zeros(5, dtype=torch.int64)}}
    if rank > 1:
        state["step"] = 0
    cairn.torch.load(state, storage_reader=BroadcastingTorchSaveReader(path), planner=planner())
    assert rank == 0 or state["model"]["b"].tolist() == [0, 1, 2, 3, 4]
    assert rank < 2 or state["step"] == 7


@pytest.mark.parametrize("planner", [DynamicMetaLoadPlanner, Planner])
def test_ranks_may_want_different_things(tmp_path: Path, planner: Any) -> None:
    torch.save(STATE, tmp_path / "weights.pt")
    run_ranks(3, load_unlike, str(tmp_path / "weights.pt"), planner)


def load_badly(rank: int, path: str, planner: Any) -> None:
    state = {"model": {"missing": torch.zeros(5)}}
    with pytest.raises(BaseException, match="missing"):
        cairn.torch.load(state, storage_reader=BroadcastingTorchSaveReader(path), planner=planner())


@pytest.mark.parametrize("planner", [DynamicMetaLoadPlanner, Planner])
def test_a_missing_tensor_is_named_on_all_ranks(tmp_path: Path, planner: Any) -> None:
    torch.save(STATE, tmp_path / "weights.pt")
    run_ranks(2, load_badly, str(tmp_path / "weights.pt"), planner)
