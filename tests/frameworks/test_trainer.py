"""Lightning's Trainer with its ModelParallelStrategy (FSDP2), through cairn and through stock PyTorch, each the other's.

On CPUs, two ranks over gloo.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from parts import PAIRS, differences, parts, saved_by, use
from ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore")


def _module(seed: int) -> Any:
    from pytorch_lightning import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 7))

        def configure_model(self) -> None:
            for layer in (*self.model, self.model):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(batch).square().sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01 * seed)

        def train_dataloader(self) -> Any:
            torch.manual_seed(seed)
            return torch.utils.data.DataLoader(torch.randn(40, 12), batch_size=4)

    return Module()


def _trainer(folder: str, steps: int) -> Any:
    from pytorch_lightning import Trainer
    from pytorch_lightning.plugins.environments import TorchElasticEnvironment
    from pytorch_lightning.strategies import ModelParallelStrategy

    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, GROUP_RANK="0",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID="test")
    strategy = ModelParallelStrategy(data_parallel_size=int(size), tensor_parallel_size=1)
    return Trainer(accelerator="cpu", devices=int(size), strategy=strategy, plugins=[TorchElasticEnvironment()],
                   max_steps=steps, default_root_dir=folder, logger=False, enable_checkpointing=False,
                   enable_progress_bar=False, enable_model_summary=False)


def _parts(trainer: Any, module: Any) -> dict[str, Any]:
    optimizer = trainer.optimizers[0]
    state = [dict(optimizer.state[each]) for group in optimizer.param_groups for each in group["params"]]
    return parts([module.state_dict(), state, trainer.global_step])


def _save(rank: int, folder: str, way: str) -> dict[str, Any]:
    use(way)
    trainer, module = _trainer(folder, 3), _module(1)
    trainer.fit(module)
    trainer.save_checkpoint(f"{folder}/checkpoint")
    return _parts(trainer, module)


def _load(rank: int, folder: str, way: str) -> dict[str, Any]:
    use(way)
    trainer, module = _trainer(folder, 3), _module(2)
    trainer.fit(module, ckpt_path=f"{folder}/checkpoint")  # it has made its three steps, so it makes no more
    return _parts(trainer, module)


@pytest.mark.parametrize("saver, loader", PAIRS)
def test_a_training_is_resumed(tmp_path: Path, saver: str, loader: str) -> None:
    saved = run_ranks(2, _save, str(tmp_path), saver)
    assert saved_by(tmp_path) == saver
    loaded = run_ranks(2, _load, str(tmp_path), loader)
    assert [differences(a, b) for a, b in zip(saved, loaded)] == [[], []]
