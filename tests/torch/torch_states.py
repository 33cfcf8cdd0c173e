"""States of every kind, known from their names alone, so that any rank can tell whether a load was right."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import Shard as LocalShard
from torch.distributed._shard.sharded_tensor import ShardedTensor, init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

SHAPES = {"w": (37, 24), "large": (520, 130), "thin": (3, 5), "vector": (41,)}
DTYPES = {"w": torch.bfloat16, "large": torch.float32, "thin": torch.int64, "vector": torch.float16}
OBJECTS = {
    "step": 7,
    "rates": [0.5, 0.25],
    "names": {"run": "x", "parts": ("a", 1, None)},
    "set": {1, 2},
    "groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}, {"lr": 0.2}],
}


def full(name: str) -> torch.Tensor:
    """The whole tensor of a name."""
    shape = SHAPES[name]
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 + len(name)) % 251).to(DTYPES[name]).reshape(shape)


def _mesh(shape: tuple[int, ...]) -> Any:
    names = ("a", "b", "c")[: len(shape)]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def _dtensors(mesh: Any, placements: list[Any], filled: bool) -> dict[str, Any]:
    made = {}
    for name in SHAPES:
        whole = full(name)
        cut = [p if not (isinstance(p, Shard) and p.dim >= whole.dim()) else Replicate() for p in placements]
        tensor = distribute_tensor(whole, mesh, cut)
        made[name] = tensor if filled else torch.zeros_like(tensor)
    return made


def _sharded(filled: bool) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    made = {}
    for name in ("w", "large", "vector"):
        whole = full(name)
        bounds = [i * whole.shape[0] // size for i in range(size + 1)]
        begin, end = bounds[rank], bounds[rank + 1]
        part = whole[begin:end].clone() if filled else torch.zeros_like(whole[begin:end])
        offsets = [begin] + [0] * (whole.dim() - 1)
        shard = LocalShard.from_tensor_and_offsets(part, offsets, rank)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[name] = init_from_local_shards([shard], *whole.shape)
    return made


def make(kind: str, filled: bool) -> dict[str, Any]:
    """The state of one kind on this rank: as it is saved, or empty to be loaded into."""
    size = dist.get_world_size() if dist.is_initialized() else 1
    if kind == "plain":
        tensors = {name: full(name) if filled else torch.zeros_like(full(name)) for name in SHAPES}
        tensors["turned"] = full("w").t() if filled else torch.zeros(24, 37, dtype=torch.bfloat16)
        return tensors
    if kind == "dtensor_1d":
        return _dtensors(_mesh((size,)), [Shard(size % 2)], filled)
    if kind == "dtensor_2d":
        mesh = (2, size // 2) if size % 2 == 0 else (size, 1)
        return _dtensors(_mesh(mesh), [Shard(0), Shard(1)] if size != 2 else [Shard(1), Replicate()], filled)
    if kind == "replicated":
        return _dtensors(_mesh((size,)), [Replicate()], filled)
    if kind == "sharded":
        return _sharded(filled)
    assert kind == "objects"
    return dict(OBJECTS) if filled else {"step": 0, "rates": [], "names": {"run": "", "parts": ()}, "set": set(),
                                         "groups": [{"lr": 0.0, "betas": (), "params": []}, {"lr": 0.0}]}


KINDS = ("plain", "dtensor_1d", "dtensor_2d", "replicated", "sharded", "objects")


def check(kind: str, state: dict[str, Any]) -> None:
    """Every part that is on this rank is what it should be."""
    if kind == "objects":
        assert state == OBJECTS
        return
    for name, tensor in state.items():
        if name == "turned":
            assert torch.equal(tensor, full("w").t()), name
        elif isinstance(tensor, ShardedTensor):
            for shard in tensor.local_shards():
                begin = shard.metadata.shard_offsets[0]
                assert torch.equal(shard.tensor, full(name)[begin : begin + shard.tensor.shape[0]]), name
        elif isinstance(tensor, DTensor):
            expected = distribute_tensor(full(name), tensor.device_mesh, tensor.placements)
            assert torch.equal(tensor.to_local(), expected.to_local()), name
        else:
            assert torch.equal(tensor, full(name)), name
