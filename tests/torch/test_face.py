"""What a user of torch.distributed.checkpoint touches is there, and is torch's where it is data."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.metadata import Metadata

import cairn.torch as dcp

pytestmark = pytest.mark.filterwarnings("ignore")

MODULES = (
    "api logger logging_handlers metadata planner resharding staging state_dict stateful storage utils "
    "default_planner filesystem format_utils hf_storage optimizer planner_helpers quantized_hf_storage "
    "state_dict_loader state_dict_saver"
).split()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_submodule_of_torchs_can_be_imported(name: str) -> None:
    ours = importlib.import_module(f"cairn.torch.{name}")
    theirs = importlib.import_module(f"torch.distributed.checkpoint.{name}")
    assert getattr(dcp, name) is ours
    assert set(getattr(theirs, "__all__", [])) <= set(dir(ours))


def saved(tmp_path: Path) -> Metadata:
    return dcp.save({"w": torch.ones(2), "n": 1}, checkpoint_id=tmp_path)


def test_metadata_is_a_dataclass_like_torchs(tmp_path: Path) -> None:
    expected = stock.save({"w": torch.ones(2), "n": 1}, checkpoint_id=str(tmp_path / "stock"))
    assert set(vars(saved(tmp_path))) == set(vars(expected))
    changed = dataclasses.replace(saved(tmp_path), planner_data=None)
    assert type(changed) is Metadata and changed.planner_data is None and "w" in changed.state_dict_metadata
    for made in (copy.copy(saved(tmp_path)), copy.deepcopy(saved(tmp_path)), pickle.loads(pickle.dumps(saved(tmp_path)))):
        assert "w" in made.state_dict_metadata and "w" in repr(made)
    fresh = saved(tmp_path)
    fresh.planner_data = {"x": ("x",)}
    assert fresh.planner_data == {"x": ("x",)} and fresh == fresh


def deep(kind: str) -> Any:
    value: Any = {"w": torch.ones(1)} if kind == "dict" else torch.ones(1)
    for _ in range(100_000):
        value = {"d": value} if kind == "dict" else [value] if kind == "list" else (value,)
    return value


def cycle(kind: str) -> Any:
    inside: Any = {} if kind == "dict" else []
    if kind == "dict":
        inside["d"] = inside
    else:
        inside.append(inside)
    return inside


@pytest.mark.parametrize("make, kind", [(deep, "dict"), (deep, "list"), (deep, "tuple"), (cycle, "dict"), (cycle, "list")])
@pytest.mark.parametrize("planner", [None, "own"])
def test_a_state_without_end_is_an_exception(tmp_path: Path, make: Any, kind: str, planner: Any) -> None:
    state = {"x": make(kind)}
    with pytest.raises((RecursionError, stock.CheckpointException)) as raised:
        dcp.save(state, checkpoint_id=tmp_path, planner=OwnPlanner() if planner else None)
    assert "ecursion" in str(raised.value) or "ested" in str(raised.value)


class OwnPlanner(dcp.DefaultSavePlanner):
    def create_local_plan(self):
        return super().create_local_plan()


def test_a_tuple_that_is_shared_many_times_is_small(tmp_path: Path) -> None:
    shared: Any = (1, 2)
    for _ in range(24):
        shared = (shared, shared)
    dcp.save({"t": shared}, checkpoint_id=tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
    into = {"t": None}
    stock.load(into, checkpoint_id=str(tmp_path))
    for _ in range(24):
        assert len(into["t"]) == 2
        into["t"] = into["t"][0]
    assert into["t"] == (1, 2)


@pytest.mark.parametrize("planner", [None, "own"])
def test_what_is_saved_under_a_long_name_can_be_loaded(tmp_path: Path, planner: Any) -> None:
    given = {"planner": OwnPlanner()} if planner else {}
    for length in (5_000, 65_536):
        dcp.save({"k" * length: torch.ones(2)}, checkpoint_id=tmp_path, **given)
        into = {"k" * length: torch.zeros(2)}
        dcp.load(into, checkpoint_id=tmp_path)
        assert torch.equal(into["k" * length], torch.ones(2))
    with pytest.raises(stock.CheckpointException, match="65536"):
        dcp.save({"k" * 65_537: torch.ones(2)}, checkpoint_id=tmp_path / "too long", **given)
    assert not list((tmp_path / "too long").glob("*distcp*"))
