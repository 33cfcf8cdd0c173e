"""What the files of a Hugging Face directory are called. Names, keys and data types are torch's own."""

from __future__ import annotations

import importlib
from typing import Optional

from torch.distributed.checkpoint._hf_utils import (  # noqa: F401 - for those who write and read them
    CUSTOM_METADATA_KEY,
    SAVED_OFFSETS_KEY,
    SHARDED_DIR_NAME,
    SUFFIX,
    _HFStorageInfo,
    _metadata_fn,
)


def _gen_file_name(index: int, largest_index: int, shard_index: Optional[int] = None) -> str:
    """model-00001-of-00004.safetensors, or shard-00003-model-00001-of-00004.safetensors."""
    model = f"model-{index:05}-of-{largest_index:05}{SUFFIX}"
    return model if shard_index is None else f"shard-{shard_index:05}-{model}"


def offer_safetensors() -> None:
    """Imports what torch's own storages import: code that says only `import safetensors` finds `safetensors.torch`
    after a save, and relies on it."""
    try:
        importlib.import_module("safetensors.torch")
    except ImportError:
        pass  # cairn does without it
