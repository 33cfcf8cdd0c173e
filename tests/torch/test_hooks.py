"""What users of DCP write themselves works unchanged: planners and tensors. Storages are in test_storages.py.

The planners are the patterns of DCP's planner documentation.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import WriteItemType
from torch.testing._internal.distributed.checkpoint_utils import get_test_extension_registry

import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")


def state() -> dict[str, Any]:
    return {"model": {"w": torch.arange(12.0).reshape(3, 4), "n": torch.tensor(5)}, "step": 3}


def empty() -> dict[str, Any]:
    return {"model": {"w": torch.zeros(3, 4), "n": torch.tensor(0)}, "step": 0}


def same(loaded: dict[str, Any], expected: dict[str, Any]) -> bool:
    return (
        torch.equal(loaded["model"]["w"], expected["model"]["w"])
        and torch.equal(loaded["model"]["n"], expected["model"]["n"])
        and loaded["step"] == expected["step"]
    )


# --- the six patterns of the planners' documentation ---


class RenamePlanner(dcp.DefaultSavePlanner):
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        super().set_up_planner({"foo_" + k: v for k, v in state_dict.items()}, storage_meta, is_coordinator)


def test_a_planner_renames_the_state(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=RenamePlanner())
    assert dcp.last_report()["way"] == "open"
    loaded = {"foo_" + k: v for k, v in empty().items()}
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same({k.removeprefix("foo_"): v for k, v in loaded.items()}, state())


class HalfPlanner(dcp.DefaultSavePlanner):
    """Changes the plan and the data: float32 tensors are stored as float16."""

    def create_local_plan(self):
        from dataclasses import replace

        plan = super().create_local_plan()
        items = []
        for item in plan.items:
            if item.tensor_data is not None and item.tensor_data.properties.dtype == torch.float32:
                properties = replace(item.tensor_data.properties, dtype=torch.float16)
                item = replace(item, tensor_data=replace(item.tensor_data, properties=properties))
            items.append(item)
        return replace(plan, items=items)

    def resolve_data(self, write_item):
        data = super().resolve_data(write_item)
        return data.half() if isinstance(data, torch.Tensor) and data.dtype == torch.float32 else data


def test_a_planner_saves_in_another_dtype(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=HalfPlanner())
    stored = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata["model.w"]
    assert stored.properties.dtype == torch.float16
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert same(loaded, state())


class TransformPlanner(dcp.DefaultSavePlanner):
    def transform_object(self, write_item, object):
        object = super().transform_object(write_item, object)
        return object + 1 if isinstance(object, torch.Tensor) else object


def test_transform_object_alone_keeps_the_save_native(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=TransformPlanner())
    assert dcp.last_report()["way"] == "native"
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert torch.equal(loaded["model"]["w"], state()["model"]["w"] + 1)
    assert loaded["step"] == 3


class SplitPlanner(dcp.DefaultSavePlanner):
    """Distributes the work: items go to the ranks in turn."""

    def create_global_plan(self, all_plans):
        from dataclasses import replace

        plans, metadata = super().create_global_plan(all_plans)
        items = [item for plan in plans for item in plan.items]
        turns = [replace(plan, items=items[i :: len(plans)]) for i, plan in enumerate(plans)]
        return turns, metadata


def _save_in_turn(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    dcp.save({str(i): torch.full((4,), float(i)) for i in range(6)}, checkpoint_id=folder, planner=SplitPlanner())
    assert dcp.last_report()["way"] == "open"
    loaded = {str(i): torch.zeros(4) for i in range(6)}
    dcp.load(loaded, checkpoint_id=folder)
    assert all(torch.equal(loaded[str(i)], torch.full((4,), float(i))) for i in range(6))


def test_a_planner_distributes_the_work(tmp_path: Path) -> None:
    run_ranks(2, _save_in_turn, str(tmp_path))
    names = {path.name[:5] for path in tmp_path.glob("*.distcp")}
    assert names == {"__0_0", "__1_0"}


class ExtraDataPlanner(dcp.DefaultSavePlanner):
    """Adds data of its own to the plans and to the metadata."""

    def create_local_plan(self):
        from dataclasses import replace

        return replace(super().create_local_plan(), planner_data={"rank": 0, "when": frozenset({"now"})})

    def create_global_plan(self, all_plans):
        from dataclasses import replace

        plans, metadata = dcp.default_planner.create_default_global_save_plan(self._dedup_save_plans(all_plans))
        return plans, replace(metadata, planner_data=[plan.planner_data for plan in all_plans])


def test_a_planner_keeps_data_of_its_own_in_the_metadata(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path, planner=ExtraDataPlanner())
    metadata = dcp.FileSystemReader(tmp_path).read_metadata()
    assert metadata.planner_data == [{"rank": 0, "when": frozenset({"now"})}]
    with open(tmp_path / ".metadata", "rb") as stream:
        assert pickle.load(stream).planner_data == metadata.planner_data


class RenameLoadPlanner(dcp.DefaultLoadPlanner):
    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.renamed = {"foo_" + k: v for k, v in state_dict.items()}
        super().set_up_planner(self.renamed, metadata, is_coordinator)

    def load_bytes(self, read_item, value):
        super().load_bytes(read_item, value)


class MetaLoadPlanner(dcp.DefaultLoadPlanner):
    """Loads into memory of its own and brings it home in commit_tensor."""

    def transform_tensor(self, read_item, tensor):
        part = super().transform_tensor(read_item, tensor)
        self.home = getattr(self, "home", {})
        memory = torch.empty(part.shape, dtype=torch.float64)
        self.home[id(memory)] = part
        return memory

    def commit_tensor(self, read_item, tensor):
        self.home.pop(next(k for k, v in self.home.items() if v.shape == tensor.shape)).copy_(tensor)


def test_a_load_planner_renames_and_one_transforms(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path / "renamed", planner=RenamePlanner())
    planner = RenameLoadPlanner()
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path / "renamed", planner=planner)
    assert torch.equal(loaded["model"]["w"], state()["model"]["w"])
    assert planner.renamed["foo_step"] == 3

    dcp.save(state(), checkpoint_id=tmp_path / "plain")
    loaded = empty()
    dcp.load(loaded, checkpoint_id=tmp_path / "plain", planner=MetaLoadPlanner())
    assert dcp.last_report()["way"] == "open"
    assert same(loaded, state())


class HookedTensor(torch.Tensor):
    """A tensor that says itself how it is cut: two columns, kept apart."""

    @staticmethod
    def __new__(cls, parts):
        return torch.Tensor._make_wrapper_subclass(cls, (parts[0].shape[0], 2), dtype=parts[0].dtype)

    def __init__(self, parts):
        self.parts = parts

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(str(func))

    def __create_write_items__(self, fqn, object):
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem

        return [
            WriteItem(MetadataIndex(fqn, chunk.offsets), WriteItemType.SHARD,
                      tensor_data=TensorWriteData(chunk, dcp.planner_helpers.TensorProperties(dtype=self.dtype),
                                                  self.size()))
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self):
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        rows = self.parts[0].shape[0]
        return [ChunkStorageMetadata(torch.Size([0, i]), torch.Size([rows, 1])) for i in range(2)]

    def __get_tensor_shard__(self, index):
        return self.parts[index.offset[1]]


def test_a_tensor_that_says_how_it_is_cut(tmp_path: Path) -> None:
    parts = [torch.arange(5.0).reshape(5, 1), torch.arange(5.0).reshape(5, 1) + 10]
    dcp.save({"t": HookedTensor(parts)}, checkpoint_id=tmp_path)
    assert dcp.last_report()["way"] == "native"
    loaded = {"t": torch.zeros(5, 2)}
    dcp.load(loaded, checkpoint_id=tmp_path)
    assert torch.equal(loaded["t"], torch.cat(parts, 1))
    hooked = HookedTensor([torch.zeros(5, 1), torch.zeros(5, 1)])
    dcp.load({"t": hooked}, checkpoint_id=tmp_path)
    assert torch.equal(torch.cat(hooked.parts, 1), torch.cat(parts, 1))


def test_a_tensor_that_is_read_whole_is_not_narrowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock.save(state(), checkpoint_id=tmp_path)
    reader = dcp.FileSystemReader(tmp_path, _extension_registry=get_test_extension_registry())
    loaded = empty()

    def narrow(*arguments: Any) -> None:
        raise NotImplementedError("narrow")

    monkeypatch.setattr(torch.Tensor, "narrow", narrow)
    dcp.load(loaded, storage_reader=reader)
    monkeypatch.undo()
    assert same(loaded, state())
