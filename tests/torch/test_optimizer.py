"""load_sharded_optimizer_state_dict: the same as torch's, and for DTensors."""

from __future__ import annotations

import json
import subprocess
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from programs import PROBE
from ranks import run_ranks
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardMetadata
from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from torch.distributed.tensor import DTensor, Shard as ShardPlacement, init_device_mesh

import cairn.torch
from cairn.torch import FileSystemReader

WEIGHT = torch.arange(60, dtype=torch.float32).reshape(10, 6)
BIAS = torch.arange(7, dtype=torch.float32)


def sharded(local: list[tuple[list[int], Any]], size: Any, parts: list[tuple[list[int], list[int]]], group: Any) -> Any:
    """A ShardedTensor of `parts` (offsets, sizes), one for each rank of a group, made without a word to the others."""
    ranks = dist.get_process_group_ranks(group)
    metadata = [ShardMetadata(at, sizes, f"rank:{rank}/cpu") for rank, (at, sizes) in zip(ranks, parts)]
    mine = [Shard(tensor, metadata[dist.get_rank(group)]) for _, tensor in local]
    properties = TensorProperties(dtype=torch.float32)
    return ShardedTensor._init_from_local_shards_and_global_metadata(
        mine, ShardedTensorMetadata(metadata, torch.Size(size), properties), process_group=group
    )


def groups_of(rows: int, columns: int) -> tuple[Any, Any]:
    """(data-parallel, tensor-parallel) group of this rank, in a grid where tensor-parallel ranks are neighbours."""
    mesh = init_device_mesh("cpu", (rows, columns), mesh_dim_names=("dp", "tp"))
    return mesh.get_group("dp"), mesh.get_group("tp")


def nested(whole: torch.Tensor, dp: Any, tp: Any) -> Any:
    """FSDP over TP as FSDP's states have it: columns (of a vector: rows) cut over tp, and what is left by rows over dp."""
    dim = whole.dim() - 1
    slices = whole.chunk(dist.get_world_size(tp), dim)
    begins = [sum(each.shape[dim] for each in slices[:i]) for i in range(len(slices))]
    mine = slices[dist.get_rank(tp)]
    rows = mine.chunk(dist.get_world_size(dp), 0)
    row_begins = [sum(each.shape[0] for each in rows[:i]) for i in range(len(rows))]
    zeros = [0] * (whole.dim() - 1)
    inner_parts = [([at, *zeros], list(each.shape)) for at, each in zip(row_begins, rows)]
    inner = sharded([([], rows[dist.get_rank(dp)].clone())], mine.shape, inner_parts, dp)
    outer_parts = [([*zeros, at], list(each.shape)) for at, each in zip(begins, slices)]
    return sharded([([], inner)], whole.shape, outer_parts, tp)


def state_of(cut: Any) -> dict[str, Any]:
    """What a trainer with Adam has; `cut` makes a rank's part of a tensor."""
    return {
        "model": {"net.w": cut(WEIGHT), "net.b": cut(BIAS)},
        "optimizer": {
            "state": {
                "net.w": {"step": torch.tensor(3.0), "exp_avg": cut(WEIGHT + 100), "exp_avg_sq": cut(WEIGHT + 200)},
                "net.b": {"step": torch.tensor(4.0), "exp_avg": cut(BIAS + 100)},
            },
            "param_groups": [{"lr": 0.5, "betas": [0.9, 0.99], "params": ["net.w", "net.b"]}],
        },
    }


def described(value: Any) -> Any:
    """A state with every tensor as plain data, so that two ranks' answers can be compared."""
    if isinstance(value, dict):
        return {key: described(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    if isinstance(value, ShardedTensor):
        parts = [(s.shard_offsets, s.shard_sizes, str(s.placement)) for s in value.metadata().shards_metadata]
        mine = [(s.metadata.shard_offsets, s.tensor.tolist()) for s in value.local_shards()]
        return ["sharded", list(value.size()), parts, mine, str(value.dtype)]
    if isinstance(value, DTensor):
        return ["dtensor", list(value.shape), str(value.placements), value.to_local().tolist()]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def save_nested(rank: int, path: str) -> None:
    dp, tp = groups_of(2, 2)
    dcp.save(state_of(lambda tensor: nested(tensor, dp, tp)), checkpoint_id=path)


def elements_in_place(state: Any, model: Any) -> int:
    """Compares every element of this rank's moments with what was saved at that place, and counts them."""
    count = 0
    for name, whole in (("net.w", WEIGHT + 100), ("net.b", BIAS + 100)):
        begin = [0] * whole.dim()
        if isinstance(model[name], ShardedTensor):
            begin = model[name].local_shards()[0].metadata.shard_offsets
        for shard in state["optimizer"]["state"][name]["exp_avg"].local_shards():
            part = whole
            for dim, length in enumerate(shard.tensor.shape):
                part = part.narrow(dim, begin[dim] + shard.metadata.shard_offsets[dim], length)
            assert torch.equal(shard.tensor, part)
            count += part.numel()
    return count


def load_both(rank: int, path: str, rows: int, columns: int) -> tuple[Any, Any, int]:
    """What torch's and cairn's functions return for a model that is cut in a grid (by rows for a grid of 0), and how
    many elements cairn's brought here."""
    model: dict[str, Any] = {"net.w": WEIGHT, "net.b": BIAS}
    if rows:
        dp, tp = groups_of(rows, columns)
        model = {name: nested(whole, dp, tp) for name, whole in model.items()}
    theirs = None
    if columns <= 1:  # torch 2.13 takes a rank's number within the inner group for its number in the world
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            theirs = described(dcp.load_sharded_optimizer_state_dict(model, "optimizer", dcp.FileSystemReader(path)))
    ours = cairn.torch.load_sharded_optimizer_state_dict(model, "optimizer", FileSystemReader(path))
    return theirs, described(ours), elements_in_place(ours, model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("optimizer") / "step-1")
    run_ranks(4, save_nested, path)
    return path


@pytest.mark.parametrize(("ranks", "rows", "columns"), [(4, 2, 2), (2, 2, 1), (2, 1, 2), (4, 0, 0), (2, 0, 0), (1, 0, 0)])
def test_gives_what_torch_gives(saved: str, ranks: int, rows: int, columns: int) -> None:
    answers = run_ranks(ranks, load_both, saved, rows, columns)
    assert sum(count for _, _, count in answers) == WEIGHT.numel() + BIAS.numel()
    for theirs, ours, _ in answers:
        assert theirs in (ours, None) and (theirs is None) == (columns > 1)
        assert ours["optimizer"]["param_groups"][0]["lr"] == 0.5
        assert ours["optimizer"]["state"]["net.w"]["step"] == 3.0


def load_dtensors(rank: int, path: str) -> Any:
    mesh = init_device_mesh("cpu", (2, 2))
    spec = [ShardPlacement(0), ShardPlacement(1)]
    model = {"net.w": dist.tensor.distribute_tensor(WEIGHT, mesh, spec)}
    state = cairn.torch.load_sharded_optimizer_state_dict(model, "optimizer", FileSystemReader(path))
    loaded = state["optimizer"]["state"]["net.w"]["exp_avg"]
    assert isinstance(loaded, DTensor) and loaded.placements == tuple(spec)
    assert torch.equal(loaded.full_tensor(), WEIGHT + 100)
    bias = state["optimizer"]["state"]["net.b"]["exp_avg"]  # no DTensor of that name: by rows
    assert isinstance(bias, ShardedTensor) and bias.local_shards()[0].tensor.tolist() == (BIAS + 100)[rank * 2 :][:2].tolist()
    wrong = {"net.w": dist.tensor.distribute_tensor(torch.zeros(4, 4), mesh, spec)}
    with pytest.raises(ValueError, match=r"'optimizer.state.net.w.exp_avg' is stored with shape \(10, 6\)"):
        cairn.torch.load_sharded_optimizer_state_dict(wrong, "optimizer", FileSystemReader(path))


def test_states_of_dtensors_are_dtensors(saved: str) -> None:
    run_ranks(4, load_dtensors, saved)


def load_badly(rank: int, path: str) -> None:
    with pytest.raises(KeyError, match="nothing in the checkpoint begins with 'optim'; there are: 'model', 'optimizer'"):
        cairn.torch.load_sharded_optimizer_state_dict({}, "optim", FileSystemReader(path))
    dp, tp = groups_of(1, 2)
    model = {"net.w": nested(torch.zeros(20, 20), dp, tp)}
    with pytest.raises(ValueError, match="does not hold this rank's part of the parameter 'net.w'"):
        cairn.torch.load_sharded_optimizer_state_dict(model, "optimizer", FileSystemReader(path))


def test_says_what_is_wrong(saved: str) -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        cairn.torch.load_sharded_optimizer_state_dict({}, "optimizer", FileSystemReader(saved))
    run_ranks(2, load_badly, saved)


@pytest.mark.parametrize("mesh", [[2, 2], [1, 2], [2, 1]])
def test_cpp_trainers_get_the_same_state(saved: str, mesh: list[int]) -> None:
    """The other face: layouts in place of a model's state, ranks that are threads."""
    ranks = mesh[0] * mesh[1]
    spec = {
        "ranks": ranks,
        "key": "optimizer",
        "parameters": {"net.w": {"mesh": mesh, "cuts": [0, 1]}, "net.b": {"mesh": [ranks], "cuts": [0]}},
    }
    run = subprocess.run([PROBE, "load-optimizer", saved, json.dumps(spec)], text=True, capture_output=True, timeout=600)
    assert run.returncode == 0, run.stderr
    expected = {"net.w.exp_avg": WEIGHT + 100, "net.w.exp_avg_sq": WEIGHT + 200, "net.b.exp_avg": BIAS + 100}
    counts = dict.fromkeys(expected, 0)
    for rank, line in enumerate(run.stdout.splitlines()):
        for name, shards in json.loads(line).items():
            name = name.removeprefix("optimizer.state.")
            for offsets, values in shards:
                part = expected[name][tuple(slice(at, None) for at in offsets)]
                if part.dim() == 2:
                    part = part[: 10 // mesh[0], : 6 // mesh[1]]
                assert part.flatten()[: len(values)].tolist() == values, (rank, name)
                counts[name] += len(values)
    assert counts == {name: whole.numel() for name, whole in expected.items()}
