"""save and async_save, with torch's signatures."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torch.distributed.checkpoint.utils import _api_bc_check, _profile

from . import _async, _dist, _progress
from ._saving import _save_state_dict, _stateful_to_state_dict
from ._stateful import made
from ._storage_utils import _storage_setup

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Deprecated in torch: `save`, without expanding Stateful objects and with a coordinator of choice."""
    warnings.warn("'save_state_dict' is deprecated; please use 'save' instead.", FutureWarning, stacklevel=2)
    storage_writer.reset()
    with _profile(), _dist.taking_part(no_dist, process_group):
        return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


@_api_bc_check  # type: ignore[untyped-decorator]
def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any | None = None,
    planner: SavePlanner | None = None,
    process_group: Any | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
    progress: bool = False,
) -> Metadata:
    """Saves a state: every rank of the group calls it, and when it returns the checkpoint is there, whole.

    The arguments and the format are those of `torch.distributed.checkpoint.save`. When it fails it raises
    `CheckpointException` on every rank, and the checkpoint that was there before is still there. With `progress`
    rank 0 shows a bar while it writes, if stderr is a terminal.

    >>> cairn.torch.save({"model": model, "step": 7}, checkpoint_id="run/step-7")
    """
    alone = _dist.is_alone(no_dist, "save")
    storage_writer = _storage_setup(storage_writer, checkpoint_id, reader=False)
    with _profile(), _progress.shown(progress, "save"), _dist.taking_part(alone, process_group):
        return _save_state_dict(
            made(lambda: _stateful_to_state_dict(state_dict), alone),
            storage_writer,
            process_group,
            no_dist=alone,
            planner=planner,
            use_collectives=use_collectives,
        )


@_api_bc_check  # type: ignore[untyped-decorator]
def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any | None = None,
    planner: SavePlanner | None = None,
    process_group: Any | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:
    """Takes a snapshot of the state and saves it in the background; the state may change when it returns.

    Returns a `concurrent.futures.Future` of the Metadata (an `AsyncSaveResponse` of two futures when the stager
    of the user's is asynchronous). A failure is raised by `future.result()`.

    >>> saved = cairn.torch.async_save(state, checkpoint_id="run/step-7")
    >>> train_on()
    >>> saved.result()
    """
    if dist.is_available() and dist.is_initialized():
        group = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
        if torch.device("cpu") not in group._device_types:
            raise AssertionError(
                "A CPU backend must be enabled for async save; try initializing process group with 'cpu:gloo,cuda:nccl'"
            )
    storage_writer = _storage_setup(storage_writer, checkpoint_id, reader=False)
    alone = no_dist or not (dist.is_available() and dist.is_initialized())
    return _async.start(
        state_dict,
        storage_writer,
        planner=planner,
        process_group=process_group,
        kind=async_checkpointer_type,
        stager=async_stager,
        no_dist=alone,
        use_collectives=use_collectives,
    )
