"""torchao's low-bit optimizers and Float8 weights under FSDP2, through cairn and through stock PyTorch.

On CPUs, two ranks over gloo; the optimizers' steps are not compiled, which changes no file.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

os.environ["TORCHDYNAMO_DISABLE"] = "1"
torch = pytest.importorskip("torch")
torchao = pytest.importorskip("torchao")

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchao.optim import AdamW4bit, AdamW8bit, AdamWFp8

import cairn.torch
from parts import PAIRS, differences, parts
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIMIZERS = {"AdamW8bit": AdamW8bit, "AdamW4bit": AdamW4bit, "AdamWFp8": AdamWFp8}

KINDS = [*OPTIMIZERS, "Float8 training", "Float8"]


def _model() -> torch.nn.Module:
    torch.manual_seed(7)
    # Large enough to be quantised on every rank: 4096 elements, in blocks of 256.
    return torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Linear(128, 128))


def _optimizer_state(kind: str, steps: int) -> dict[str, Any]:
    model = fully_shard(_model(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=0.01)
    for step in range(max(steps, 1)):
        torch.manual_seed(step if steps else 1000)
        model(torch.randn(8, 128)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"optim": get_optimizer_state_dict(model, optimizer), "step": steps}


def _float8_training_state(steps: int) -> dict[str, Any]:
    """Weights that FSDP2 gathers as float8: DTensors over a tensor class of torchao's."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True)
    model = convert_to_float8_training(_model(), config=config)
    model = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    state = model.state_dict()
    if not steps:
        for tensor in state.values():
            getattr(tensor.to_local(), "_tensor", tensor.to_local()).zero_()
    return {"model": state, "step": steps}


def _float8_state(steps: int) -> dict[str, Any]:
    """Weights that are float8, the same on every rank: FSDP2 cannot cut them in this torchao."""
    from torchao.quantization import Float8WeightOnlyConfig, quantize_

    model = _model()
    if not steps:
        torch.nn.init.ones_(model[0].weight)
        torch.nn.init.ones_(model[1].weight)
    quantize_(model, Float8WeightOnlyConfig())
    return {"model": model.state_dict(), "step": steps}


def _state(kind: str, steps: int) -> dict[str, Any]:
    if kind == "Float8 training":
        return _float8_training_state(steps)
    return _float8_state(steps) if kind == "Float8" else _optimizer_state(kind, steps)


def _together(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What one rank would have: cuts by rows put together. Tables that belong to a format are the same everywhere."""
    whole = dict(ranks[0])
    for name, part in whole.items():
        if "|local" in name and not name.endswith("qmap"):
            whole[name] = b"".join(rank[name] for rank in ranks)
    return whole


def _run(rank: int, step: str, folder: str, way: str, kind: str) -> None:
    """Saves or loads and leaves what the state then holds in a file."""
    warnings.simplefilter("ignore")
    module = cairn.torch if way == "cairn" else dcp
    state = _state(kind, 3 if step == "save" else 0)
    getattr(module, step)(state, checkpoint_id=folder)
    torch.save(parts(state), f"{folder}/{step}-{rank}")


def _all(folder: Path, step: str, ranks: int) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{step}-{rank}", weights_only=True) for rank in range(ranks)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved_by, loaded_by", PAIRS)
def test_on_the_same_ranks(tmp_path: Path, kind: str, saved_by: str, loaded_by: str) -> None:
    run_ranks(2, _run, "save", str(tmp_path), saved_by, kind)
    run_ranks(2, _run, "load", str(tmp_path), loaded_by, kind)
    for saved, loaded in zip(_all(tmp_path, "save", 2), _all(tmp_path, "load", 2)):
        assert differences(saved, loaded) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved_by", ["stock", "cairn"])
def test_on_one_rank(tmp_path: Path, kind: str, saved_by: str) -> None:
    run_ranks(2, _run, "save", str(tmp_path), saved_by, kind)
    run_ranks(1, _run, "load", str(tmp_path), "cairn", kind)
    assert differences(_together(_all(tmp_path, "save", 2)), _all(tmp_path, "load", 1)[0]) == []
