"""accelerate's save_state and load_state under FSDP 1 and FSDP 2, through cairn and through stock PyTorch, each the other's.

On CPUs, two ranks over gloo. accelerate uses FSDP on accelerators only: the test tells its state that it does here
(`_accelerator`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from parts import PAIRS, differences, parts, saved_by, use
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")


def _accelerator(version: int) -> Any:
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, OMP_NUM_THREADS="1")
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, state_dict_type="SHARDED_STATE_DICT")
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    return accelerator


def _trained(accelerator: Any, seed: int, steps: int) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 7))
    if not accelerator.is_fsdp2:
        # accelerate would wrap it for a device with a number, which a CPU has not. What is wrapped it leaves as it is.
        model = FSDP(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * seed)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for step in range(steps):
        torch.manual_seed(step)
        accelerator.backward(model(torch.randn(4, 12)).square().sum())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return model, optimizer, scheduler


def _parts(model: Any, optimizer: Any, scheduler: Any) -> dict[str, Any]:
    """The parameters and the optimizer's state as they lie on this rank."""
    state = [dict(optimizer.state[each]) for group in optimizer.param_groups for each in group["params"]]
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return parts([list(model.parameters()), state, groups, scheduler.state_dict()])


def _save(rank: int, folder: str, way: str, version: int) -> dict[str, Any]:
    use(way)
    accelerator = _accelerator(version)
    training = _trained(accelerator, seed=1, steps=3)
    accelerator.save_state(folder)
    return _parts(*training)


def _load(rank: int, folder: str, way: str, version: int) -> dict[str, Any]:
    use(way)
    accelerator = _accelerator(version)
    training = _trained(accelerator, seed=2, steps=1)
    accelerator.load_state(folder)
    return _parts(*training)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("saver, loader", PAIRS)
def test_a_training_is_resumed(tmp_path: Path, saver: str, loader: str, version: int) -> None:
    saved = run_ranks(2, _save, str(tmp_path), saver, version)
    assert saved_by(tmp_path) == saver
    loaded = run_ranks(2, _load, str(tmp_path), loader, version)
    assert [differences(a, b) for a, b in zip(saved, loaded)] == [[], []]
