"""Tensors that are cut in ways of their own, or written by Python: stored as PyTorch stores them, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.distributed.checkpoint as stock
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardMetadata
from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import Shard as ShardPlacement

import cairn.torch as dcp
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")


class Coded(torch.Tensor):
    """A tensor that keeps codes and a scale in place of its elements, as quantised optimizers do."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> "Coded":
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], _: Any, __: Any = None, ___: Any = None) -> "Coded":
        return Coded(inner["codes"], inner["scale"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Coded({self.codes}, {self.scale})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in ("detach", "alias", "view"):
            return Coded(args[0].codes, args[0].scale)
        if name in ("clone", "_to_copy"):
            return Coded(args[0].codes.clone(), args[0].scale.clone())
        if name == "is_pinned":
            return False
        if name == "copy_":
            args[0].codes.copy_(args[1].codes)
            args[0].scale.copy_(args[1].scale)
            return args[0]
        raise NotImplementedError(f"{name} of a Coded tensor")


torch.serialization.add_safe_globals([Coded])


def coded(rank: int) -> DTensor:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    local = Coded(torch.full((2, 3), rank + 1, dtype=torch.uint8), torch.tensor([rank + 0.5]))
    return DTensor.from_local(local, mesh, [ShardPlacement(0)], run_check=False)


def save_and_load_coded(rank: int, folder: str, saver: str, loader: str) -> list[Any]:
    by = {"stock": stock, "cairn": dcp}
    by[saver].save({"opt": {"state": coded(rank)}, "step": 3}, checkpoint_id=folder)
    into = {"opt": {"state": coded(9)}, "step": 0}
    by[loader].load(into, checkpoint_id=folder)
    local = into["opt"]["state"]._local_tensor
    return [local.codes, local.scale, into["step"]]


@pytest.mark.parametrize("saver, loader", [("cairn", "cairn"), ("cairn", "stock"), ("stock", "cairn")])
def test_a_dtensor_over_a_subclass_is_every_ranks_own(tmp_path: Path, saver: str, loader: str) -> None:
    for rank, (codes, scale, step) in enumerate(run_ranks(2, save_and_load_coded, str(tmp_path), saver, loader)):
        assert torch.equal(codes, torch.full((2, 3), rank + 1, dtype=torch.uint8))
        assert torch.equal(scale, torch.tensor([rank + 0.5])) and step == 3


def save_coded_in_the_background(rank: int, folder: str) -> list[Any]:
    value = coded(rank)
    saved = dcp.async_save({"state": value}, checkpoint_id=folder)
    value._local_tensor.codes.zero_()
    saved.result()
    into = {"state": coded(9)}
    stock.load(into, checkpoint_id=folder)
    return [into["state"]._local_tensor.codes]


def test_a_dtensor_over_a_subclass_is_saved_in_the_background(tmp_path: Path) -> None:
    for rank, (codes,) in enumerate(run_ranks(2, save_coded_in_the_background, str(tmp_path))):
        assert torch.equal(codes, torch.full((2, 3), rank + 1, dtype=torch.uint8))


class Own(DTensor):
    """A class of the user's."""


def save_own_class(rank: int, folder: str) -> torch.Tensor:
    mesh = init_device_mesh("cpu", (2,))
    value = DTensor.from_local(torch.full((2, 2), float(rank + 1)), mesh, [ShardPlacement(0)], run_check=False)
    value.__class__ = Own
    dcp.save({"w": value}, checkpoint_id=folder)
    into = {"w": torch.zeros(4, 2)}
    stock.load(into, checkpoint_id=folder)
    return into["w"]


def test_a_subclass_of_dtensor_is_cut_like_a_dtensor(tmp_path: Path) -> None:
    for whole in run_ranks(2, save_own_class, str(tmp_path)):
        assert torch.equal(whole, torch.tensor([[1.0, 1], [1, 1], [2, 2], [2, 2]]))


def nested(rank: int) -> ShardedTensor:
    """4 x 4 over 4 ranks: rows by pairs of ranks (FSDP), columns within a pair (TP)."""
    value = torch.arange(16.0).reshape(4, 4)
    row, column = 2 * (rank // 2), 2 * (rank % 2)
    properties = TensorProperties(dtype=torch.float32)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    first = 2 * (rank // 2)
    inner_shards = [ShardMetadata([0, 2 * i], [2, 2], f"rank:{first + i}/cpu") for i in range(2)]
    mine = Shard(value[row : row + 2, column : column + 2].clone(), inner_shards[rank % 2])
    inner = ShardedTensor._init_from_local_shards_and_global_metadata(
        [mine],
        ShardedTensorMetadata(inner_shards, torch.Size([2, 4]), properties),
        process_group=pairs[rank // 2],
    )
    outer_shards = [ShardMetadata([2 * i, 0], [2, 4], f"rank:{rank if i == rank // 2 else (rank + 2) % 4}/cpu")
                    for i in range(2)]
    return ShardedTensor._init_from_local_shards_and_global_metadata(
        [Shard(inner, outer_shards[rank // 2])],
        ShardedTensorMetadata(outer_shards, torch.Size([4, 4]), properties),
    )


def save_nested(rank: int, folder: str) -> torch.Tensor:
    dcp.save({"w": nested(rank)}, checkpoint_id=folder)
    into = {"w": torch.zeros(4, 4)}
    dcp.load(into, checkpoint_id=folder)
    again = {"w": nested(rank)}
    again["w"].local_shards()[0].tensor.local_shards()[0].tensor.zero_()
    dcp.load(again, checkpoint_id=folder)
    inner = again["w"].local_shards()[0].tensor.local_shards()[0].tensor
    row, column = 2 * (rank // 2), 2 * (rank % 2)
    assert torch.equal(inner, into["w"][row : row + 2, column : column + 2])
    return into["w"]


def test_a_sharded_tensor_in_a_sharded_tensor_is_saved_whole(tmp_path: Path) -> None:
    for whole in run_ranks(4, save_nested, str(tmp_path)):
        assert torch.equal(whole, torch.arange(16.0).reshape(4, 4))


class Plus(dcp.DefaultSavePlanner):
    """Adds up what it is given, so that a part of a tensor gives another result than all of it."""

    def transform_object(self, write_item, object):
        if not isinstance(object, torch.Tensor):
            return super().transform_object(write_item, object)
        return object.cumsum(0)


class Elsewhere(dcp.DefaultSavePlanner):
    def lookup_object(self, index):
        found = super().lookup_object(index)
        return found.flip(0) if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("planner, expected", [(Plus, lambda w: w.cumsum(0)), (Elsewhere, lambda w: w.flip(0))])
def test_hooks_see_a_large_tensor_whole(tmp_path: Path, planner: Any, expected: Any) -> None:
    big = torch.ones(20_000_000) if planner is Plus else torch.arange(20_000_000.0)  # 80 MB: the engine would cut it
    dcp.save({"w": big}, checkpoint_id=tmp_path, planner=planner())
    into = {"w": torch.zeros_like(big)}
    stock.load(into, checkpoint_id=str(tmp_path))
    assert torch.equal(into["w"], expected(big))


class Written(torch.Tensor):
    """Says how it is written and nothing else."""

    def __create_write_items__(self, fqn: str, object: Any) -> Any:
        from torch.distributed.checkpoint.planner_helpers import _create_write_item_for_tensor

        return [_create_write_item_for_tensor(fqn, object)]


torch.serialization.add_safe_globals([Written])


def test_a_class_that_only_says_how_it_is_written_is_stored_as_a_tensor(tmp_path: Path) -> None:
    dcp.save({"w": torch.arange(4.0).as_subclass(Written)}, checkpoint_id=tmp_path)
    into = {"w": torch.zeros(4)}
    stock.load(into, checkpoint_id=str(tmp_path))
    assert torch.equal(into["w"], torch.arange(4.0))


def replicated(rank: int, folder: str) -> list[int]:
    mesh = init_device_mesh("cpu", (2,))

    def value(code: int) -> DTensor:
        local = Coded(torch.full((2, 3), code, dtype=torch.uint8), torch.tensor([1.5]))
        return DTensor.from_local(local, mesh, [Replicate()], run_check=False)

    dcp.save({"w": value(7)}, checkpoint_id=folder)
    into = {"w": value(0)}
    dcp.load(into, checkpoint_id=folder)
    return into["w"]._local_tensor.codes.unique().tolist()


def test_a_replicated_dtensor_over_a_subclass_is_written_once(tmp_path: Path) -> None:
    assert run_ranks(2, replicated, str(tmp_path)) == [[7], [7]]
