"""torchtitan's CheckpointManager over FSDP2, through cairn and through stock PyTorch, each the other's.

On CPUs, two ranks over gloo. Pinned memory needs a GPU: for the mode that has its name the test asks torchtitan's stager
for memory that is shared and not pinned (`_without_cuda`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from parts import PAIRS, differences, parts, saved_by, use
from ranks import run_ranks

# torchtitan is imported by the ranks only: it takes names from what stands in PyTorch's place at that moment.

pytestmark = pytest.mark.filterwarnings("ignore")

MODES = ["disabled", "async", "async_with_pinned_mem"]
STEP = 3


class Progress:
    """What a trainer keeps beside the model, and a data loader's place: an object with a state."""

    def __init__(self, step: int) -> None:
        self.values = {"step": torch.tensor(step), "losses": [0.5 * step, 0.25], "rng": b"\x00\xff" * step}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = dict(state)


def _without_cuda() -> None:
    from torch.distributed.checkpoint.staging import StagingOptions
    from torchtitan.components.checkpointer import dcp

    dcp.StagingOptions = lambda **_: StagingOptions(
        use_pinned_memory=False, use_shared_memory=True, use_async_staging=True, use_non_blocking_copy=False
    )


class Training:
    def __init__(self, folder: str, mode: str, seed: int) -> None:
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig

        _without_cuda()
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 7))
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (*self.model, self.model):
            fully_shard(layer, mesh=mesh)
        group = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.01 * seed})
        config = OptimizersContainer.Config(param_groups=[group], implementation="for-loop")
        self.optimizers = OptimizersContainer(config, model_parts=[self.model])
        schedule = LRSchedulersContainer.Config(warmup_steps=2)
        self.schedulers = schedule.build(optimizers=self.optimizers, training_steps=10)
        self.loader, self.progress = Progress(seed), Progress(10 * seed)
        self.manager = CheckpointManager(
            CheckpointManager.Config(enable=True, folder="checkpoint", interval=STEP, async_mode=mode),
            dataloader=self.loader,
            model_parts=[self.model],
            optimizers=self.optimizers,
            lr_schedulers=self.schedulers,
            states={"train_state": self.progress},
            sd_adapter=None,
            base_folder=folder,
        )

    def train(self, steps: int) -> None:
        for step in range(steps):
            torch.manual_seed(step)
            self.model(torch.randn(4, 12)).square().sum().backward()
            self.optimizers.step()
            self.optimizers.zero_grad()
            self.schedulers.step()

    def parts(self) -> dict[str, Any]:
        states = (self.model, self.optimizers, self.schedulers, self.loader, self.progress)
        return parts([each.state_dict() for each in states])


def _save(rank: int, folder: str, way: str, mode: str) -> dict[str, Any]:
    use(way)
    training = Training(folder, mode, seed=1)
    training.train(STEP)
    saved = training.parts()
    assert training.manager.save(STEP)
    training.manager.maybe_wait_for_staging()
    training.train(1)  # the training goes on while it is written
    training.manager.maybe_wait_for_saving()
    training.manager.close()
    return saved


def _load(rank: int, folder: str, way: str) -> dict[str, Any]:
    use(way)
    training = Training(folder, "disabled", seed=2)
    training.train(1)
    assert training.manager.load()
    training.manager.close()
    return training.parts()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("saver, loader", PAIRS)
def test_a_training_is_resumed(tmp_path: Path, saver: str, loader: str, mode: str) -> None:
    saved = run_ranks(2, _save, str(tmp_path), saver, mode)
    assert saved_by(tmp_path) == saver
    loaded = run_ranks(2, _load, str(tmp_path), loader)
    assert [differences(a, b) for a, b in zip(saved, loaded)] == [[], []]
