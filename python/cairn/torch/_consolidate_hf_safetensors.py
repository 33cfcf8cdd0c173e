"""Whole tensors out of the shards that ranks wrote: torch's consolidation, streaming through the engine."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import _consolidate_hf_safetensors as _torchs

from .. import Error, _engine
from . import _dist


def __getattr__(name: str) -> Any:
    return getattr(_torchs, name)


def offer_safetensors() -> None:
    """Imports what torch's own storages import: code that says only `import safetensors` finds `safetensors.torch`
    after a save, and relies on it."""
    with contextlib.suppress(ImportError):  # cairn does without it
        importlib.import_module("safetensors.torch")


def consolidate_safetensors_files(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1
) -> None:
    """Puts the tensors that the mapping names into `model-XXXXX-of-NNNNN.safetensors` files in `output_dir`, whole,
    with an index. Bytes stream: no tensor is ever in memory as a whole. `num_threads` of 1, the default, leaves their
    number to the engine.

    >>> consolidate_safetensors_files("run/sharded", "run", {"embed.weight": 1, "head.weight": 2})
    """
    _consolidate(input_dir, output_dir, fqn_to_index_mapping, num_threads, None)


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any | None = None,
) -> None:
    """The same, with the files spread over the ranks of a group by their sizes. All ranks call it; it returns when the
    index is there, and a failure is raised on all of them."""
    group, seconds = None, 1800.0
    if dist.is_available() and dist.is_initialized():
        group, seconds = _dist.engine_group(process_group), _dist.DEADLINE
    _consolidate(input_dir, output_dir, fqn_to_index_mapping, num_threads, group, seconds)


def _consolidate(
    source: Any, to: Any, file_of: dict[str, int], threads: int, group: Any, seconds: float = 1800.0
) -> None:
    if not file_of:
        raise ValueError("fqn_to_index_mapping says for no tensor which file it goes to")
    offer_safetensors()
    try:
        _engine.consolidate(os.fspath(source), os.fspath(to), file_of, threads if threads > 1 else 0, group, seconds)
    except Error as error:
        if "No DCP custom metadata" in error.message:
            raise ValueError(str(error)) from error
        raise
