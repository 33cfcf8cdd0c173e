"""Training loops as people write them: a few steps, a save, and the same training on another number of ranks.

Every loop saves and resumes through `torch.distributed.checkpoint` with cairn installed, as a framework would.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import cairn.torch
from ranks import run_ranks

STEPS = 3


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 36)
        self.down = torch.nn.Linear(36, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.down(self.up(x).relu()))


def _net() -> Net:
    torch.manual_seed(7)
    return Net()


def _ddp(world: int) -> torch.nn.Module:
    return DistributedDataParallel(_net())


def _fsdp2(world: int) -> torch.nn.Module:
    net = _net()
    mesh = init_device_mesh("cpu", (world,))
    for part in (net.up, net.down):
        fully_shard(part, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def _tensor_parallel(world: int) -> torch.nn.Module:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(_net(), init_device_mesh("cpu", (world,)), plan)


def _fsdp2_over_tensor_parallel(world: int) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (max(1, world // 2), min(2, world)), mesh_dim_names=("dp", "tp"))
    net = parallelize_module(_net(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return fully_shard(net, mesh=mesh["dp"])


MODELS: dict[str, Callable[[int], torch.nn.Module]] = {
    "ddp": _ddp,
    "fsdp2": _fsdp2,
    "tp": _tensor_parallel,
    "fsdp2_tp": _fsdp2_over_tensor_parallel,
}


class Trainer:
    """Model and optimizer as one Stateful, the way PyTorch's recipes write it."""

    def __init__(self, kind: str) -> None:
        self.model = MODELS[kind](dist.get_world_size())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.options = StateDictOptions()

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer, options=self.options)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"],
            options=self.options,
        )

    def train(self, first: int) -> None:
        for step in range(first, first + STEPS):
            torch.manual_seed(step)  # all ranks see the same batch
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 16)).square().sum().backward()
            self.optimizer.step()


def _whole(value: Any) -> Any:
    """Nested state with every tensor put together, for ranks that are cut in different ways."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, DTensor):
        return value.full_tensor().clone()
    return value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _first_part(rank: int, kind: str, folder: str, later: bool) -> Any:
    warnings.simplefilter("ignore")
    with cairn.torch.installed():
        trainer = Trainer(kind)
        trainer.train(0)
        if later:
            saved = dcp.async_save({"app": trainer, "step": STEPS}, checkpoint_id=folder)
            before = _whole(trainer.state_dict())
            trainer.train(100)  # goes on and is not saved
            saved.result()
        else:
            dcp.save({"app": trainer, "step": STEPS}, checkpoint_id=folder)
            before = _whole(trainer.state_dict())
        assert cairn.torch.last_report()["way"] == "native"
        return before if rank == 0 else None


def _second_part(rank: int, kind: str, folder: str, expected: Any) -> Any:
    warnings.simplefilter("ignore")
    with cairn.torch.installed():
        trainer = Trainer(kind)
        state = {"app": trainer, "step": 0}
        dcp.load(state, checkpoint_id=folder)
        assert cairn.torch.last_report()["way"] == "native"
        assert state["step"] == STEPS
        loaded = _whole(trainer.state_dict())
        _assert_same(expected, loaded)
        trainer.train(STEPS)
        return None


def _assert_same(a: Any, b: Any, at: str = "") -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), at
        for key in a:
            _assert_same(a[key], b[key], f"{at}.{key}")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b), at
    else:
        assert a == b, at


@pytest.mark.parametrize("kind", MODELS)
def test_a_training_goes_on_with_other_ranks(tmp_path: Path, kind: str) -> None:
    later = kind in ("fsdp2", "ddp")
    [expected, *_] = run_ranks(4, _first_part, kind, str(tmp_path), later)
    run_ranks(2, _second_part, kind, str(tmp_path), expected)
