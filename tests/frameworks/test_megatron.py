"""Megatron-core's dist_checkpointing (torch_dist) through cairn and through stock PyTorch, each the other's.

On CPUs, two ranks over gloo. Megatron takes CUDA for granted in a few places that have nothing to do with files:
the test puts CPU functions there (`_without_cuda`).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

import cairn.torch
from parts import PAIRS
from ranks import run_ranks

# Megatron is imported by the ranks only: its classes are derived from what stands in PyTorch's place at that moment.

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS = 12, 7
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def _without_cuda() -> None:
    torch.cuda.synchronize = lambda *arguments: None
    torch.cuda.current_device = lambda: "cpu"


def _whole(dtype: Any) -> torch.Tensor:
    return (torch.arange(ROWS * COLUMNS) - 40).reshape(ROWS, COLUMNS).to(dtype)


def _state(full: bool, step: int) -> dict[str, Any]:
    """Tensors cut by rows, one that all ranks have, and objects."""
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

    rank, world = dist.get_rank(), dist.get_world_size()
    state: dict[str, Any] = {"step": step}
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        mine = (_whole(dtype) + step).tensor_split(world, 0)[rank].clone()
        mine = mine if full else torch.zeros_like(mine)
        state[f"rows.{name}"] = ShardedTensor.from_rank_offsets(f"rows.{name}", mine, (0, rank, world))
    same = torch.full((5,), float(step)) if full else torch.zeros(5)
    state["same"] = ShardedTensor.from_rank_offsets("same", same, replica_id=rank)
    thing = {"rng": [step, 2, 3]} if full else None
    state["thing"] = ShardedObject("thing", thing, (1,), (0,), replica_id=rank)
    return state


def _is_right(loaded: dict[str, Any], step: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    assert loaded["step"] == step
    for dtype in DTYPES:
        expected = (_whole(dtype) + step).tensor_split(world, 0)[rank]
        assert torch.equal(loaded[f"rows.{str(dtype).removeprefix('torch.')}"], expected)
    assert loaded["same"].tolist() == [float(step)] * 5
    assert loaded["thing"] == {"rng": [step, 2, 3]}


def _megatron(way: str) -> Any:
    """Megatron's functions, over stock PyTorch or over a cairn that was installed before or after it was imported."""
    warnings.simplefilter("ignore")
    _without_cuda()
    if way == "cairn":
        cairn.torch.install()
    from megatron.core import dist_checkpointing

    if way == "cairn late":
        cairn.torch.install()
    return dist_checkpointing


def _save(rank: int, folder: str, way: str, step: int) -> None:
    megatron = _megatron(way)
    megatron.save(_state(True, step), folder)
    if way == "cairn":
        from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

        assert issubclass(FileSystemWriterAsync, cairn.torch.FileSystemWriter)


def _load(rank: int, folder: str, way: str, step: int) -> None:
    megatron = _megatron(way)
    _is_right(megatron.load(_state(False, step), folder), step)


@pytest.mark.parametrize(
    "saved_by, saving, loaded_by, loading",
    [
        ("cairn", 2, "stock", 2),
        ("stock", 2, "cairn", 2),
        ("cairn", 2, "cairn", 2),
        ("cairn", 2, "cairn", 1),
        ("cairn", 1, "cairn", 2),
        ("stock", 1, "cairn", 2),
        ("cairn late", 2, "cairn late", 1),
        ("stock", 2, "cairn late", 1),
    ],
)
def test_a_checkpoint_of_megatrons(tmp_path: Path, saved_by: str, saving: int, loaded_by: str, loading: int) -> None:
    run_ranks(saving, _save, str(tmp_path), saved_by, 3)
    assert not list(tmp_path.glob(".cairn-manifest.*"))  # the data is Megatron's own writing
    run_ranks(loading, _load, str(tmp_path), loaded_by, 3)


@pytest.mark.parametrize("saver, loader", PAIRS)
def test_in_the_background_and_fully_parallel(tmp_path: Path, saver: str, loader: str) -> None:
    """Ranks share the writing of what all of them have, in processes of Megatron's, and share the reading."""
    run_ranks(2, _save_in_background, str(tmp_path), saver, 5)
    run_ranks(2, _load_in_parallel, str(tmp_path), loader, 5)


def _save_in_background(rank: int, folder: str, way: str, step: int) -> None:
    megatron = _megatron(way)
    from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    strategy = FullyParallelSaveStrategyWrapper(TorchDistSaveShardedStrategy("torch_dist", 1))
    queue = AsyncCallsQueue()
    queue.schedule_async_request(megatron.save(_state(True, step), folder, strategy, async_sharded_save=True))
    queue.maybe_finalize_async_calls(blocking=True)


def _load_in_parallel(rank: int, folder: str, way: str, step: int) -> None:
    megatron = _megatron(way)
    from megatron.core.dist_checkpointing.serialization import get_default_load_sharded_strategy
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelLoadStrategyWrapper

    # Of the ways to exchange what was read, this one works without a GPU.
    strategy = FullyParallelLoadStrategyWrapper(get_default_load_sharded_strategy(folder), exchange_algo="gather_object")
    _is_right(megatron.load(_state(False, step), folder, strategy), step)


def test_what_megatron_keeps_in_the_description_stays_there(tmp_path: Path) -> None:
    """It remembers the plans of all ranks as an attribute of the Metadata, for the next save."""
    for way in ("stock", "cairn"):
        (tmp_path / way).mkdir()
        run_ranks(2, _save_with_remembered_plans, str(tmp_path / way), way)
        assert run_ranks(1, _remembered_plans, str(tmp_path / way), "stock") == [2]
        assert run_ranks(1, _remembered_plans, str(tmp_path / way), "cairn") == [2]


def _save_with_remembered_plans(rank: int, folder: str, way: str) -> None:
    megatron = _megatron(way)
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    megatron.save(_state(True, 3), folder, TorchDistSaveShardedStrategy("torch_dist", 1, cached_metadata=True))


def _remembered_plans(rank: int, folder: str, way: str) -> int:
    _megatron(way)
    import torch.distributed.checkpoint as dcp

    return len(dcp.FileSystemReader(folder).read_metadata().all_local_plans)
