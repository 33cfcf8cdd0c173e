"""What the files of a Hugging Face directory are called. Names, keys and data types are torch's own."""

from __future__ import annotations

import contextlib
import importlib

from torch.distributed.checkpoint._hf_utils import (
    CUSTOM_METADATA_KEY,
    SAVED_OFFSETS_KEY,
    SHARDED_DIR_NAME,
    SUFFIX,
    _HFStorageInfo,
    _metadata_fn,
)

__all__ = [
    "CUSTOM_METADATA_KEY",
    "SAVED_OFFSETS_KEY",
    "SHARDED_DIR_NAME",
    "SUFFIX",
    "_HFStorageInfo",
    "_gen_file_name",
    "_metadata_fn",
    "offer_safetensors",
]


def _gen_file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    """model-00001-of-00004.safetensors, or shard-00003-model-00001-of-00004.safetensors."""
    model = f"model-{index:05}-of-{largest_index:05}{SUFFIX}"
    return model if shard_index is None else f"shard-{shard_index:05}-{model}"


def offer_safetensors() -> None:
    """Imports what torch's own storages import: code that says only `import safetensors` finds `safetensors.torch`
    after a save, and relies on it."""
    with contextlib.suppress(ImportError):  # cairn does without it
        importlib.import_module("safetensors.torch")
