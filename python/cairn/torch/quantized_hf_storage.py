"""Models whose weights are stored in few bits, loaded as floats: torch's QuantizedHuggingFaceStorageReader."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

# Taken now: cairn.torch.install() puts the class here in its place.
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader as _Reader

from .. import _engine
from .hf_storage import HuggingFaceStorageReader

__all__ = ["QuantizedHuggingFaceStorageReader"]

_ENGINE_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class QuantizedHuggingFaceStorageReader(HuggingFaceStorageReader, _Reader):
    """Dequantises while it reads, any part of a tensor: `X.weight` with `X.weight_scale_inv` (a scale for each
    square of `block_size` elements) and `X_blocks` with `X_scales` (MXFP4). Other tensors are read as they are.

    The arguments are torch's. The directory needs no index, and quantised tensors may lie in several files.
    """

    __init__ = _Reader.__init__

    def _open_engine(self) -> Any:
        return _engine.hf_reader(os.fspath(self.path), _ENGINE_TYPES.get(self.target_dtype, "float32"), self.block_size)

    def read_metadata(self) -> Metadata:
        if not self._is_listed_by_engine():  # torch's own steps dequantise then
            listed: Metadata = _Reader.read_metadata(self)
            return listed
        metadata: Metadata = HuggingFaceStorageReader.read_metadata(self)
        entry: Any  # there are only tensors
        for fqn, entry in metadata.state_dict_metadata.items():
            self._tensor_full_shapes[fqn] = entry.size
        return metadata
