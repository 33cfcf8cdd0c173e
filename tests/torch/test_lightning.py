"""Lightning Fabric, which saves through torch.distributed.checkpoint by itself, with cairn under it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import cairn.torch
from ranks import run_ranks


def _parallelize(model: torch.nn.Module, mesh: Any) -> torch.nn.Module:
    return fully_shard(model, mesh=mesh["data_parallel"])


def _fabric() -> Any:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments import TorchElasticEnvironment
    from lightning_fabric.strategies import ModelParallelStrategy

    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, GROUP_RANK="0",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID="test")
    strategy = ModelParallelStrategy(_parallelize, data_parallel_size=int(size), tensor_parallel_size=1)
    fabric = Fabric(accelerator="cpu", devices=int(size), strategy=strategy, plugins=[TorchElasticEnvironment()])
    fabric.launch()
    return fabric


def _trained(fabric: Any, steps: int) -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 12))
    model = fabric.setup_module(model)
    optimizer = fabric.setup_optimizers(torch.optim.Adam(model.parameters(), lr=0.1))
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        fabric.backward(model(torch.randn(4, 12)).square().sum())
        optimizer.step()
    return model, optimizer


def _whole(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.full_tensor().detach().clone() for name, value in model.state_dict().items()}


def _save(rank: int, folder: str) -> Any:
    warnings.simplefilter("ignore")
    with cairn.torch.installed():
        fabric = _fabric()
        model, optimizer = _trained(fabric, 3)
        fabric.save(folder, {"model": model, "optimizer": optimizer, "step": 3})
        assert cairn.torch.last_report()["way"] == "native"
        return _whole(model)


def _resume(rank: int, folder: str, expected: dict[str, torch.Tensor]) -> None:
    warnings.simplefilter("ignore")
    with cairn.torch.installed():
        fabric = _fabric()
        model, optimizer = _trained(fabric, 1)
        state = {"model": model, "optimizer": optimizer, "step": 0}
        fabric.load(folder, state)
        assert cairn.torch.last_report()["way"] == "native"
        assert state["step"] == 3
        loaded = _whole(model)
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], expected[name]) for name in expected)


def test_fabric_resumes_on_other_ranks(tmp_path: Path) -> None:
    saved = run_ranks(2, _save, str(tmp_path / "checkpoint"))
    assert list((tmp_path / "checkpoint").glob(".cairn-manifest.*"))
    run_ranks(4, _resume, str(tmp_path / "checkpoint"), saved[0])
