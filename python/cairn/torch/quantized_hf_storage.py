"""Models whose weights are stored in few bits, loaded as floats: torch's QuantizedHuggingFaceStorageReader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import ReadItem

from .. import _engine
from ._hf_utils import _metadata_fn
from .hf_storage import HuggingFaceStorageReader

__all__ = ["QuantizedHuggingFaceStorageReader"]

_ENGINE_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class QuantizedHuggingFaceStorageReader(HuggingFaceStorageReader):
    """Dequantises while it reads, any part of a tensor: `X.weight` with `X.weight_scale_inv` (a scale for each
    square of `block_size` elements) and `X_blocks` with `X_scales` (MXFP4). Other tensors are read as they are.

    The arguments are torch's. The directory needs no index, and quantised tensors may lie in several files.
    """

    def __init__(
        self, path: str, thread_count: int = 1, target_dtype: torch.dtype = torch.float32, block_size: int = 128
    ) -> None:
        super().__init__(path=path, thread_count=thread_count)
        self.target_dtype = target_dtype
        self.block_size = block_size
        self._weight_scale_mapping: dict[str, str] = {}
        self._weight_map: dict[str, str] = {}
        self._tensor_full_shapes: dict[str, torch.Size] = {}

    def _open_engine(self) -> Any:
        return _engine.hf_reader(os.fspath(self.path), _ENGINE_TYPES.get(self.target_dtype, "float32"), self.block_size)

    def read_metadata(self) -> Metadata:
        metadata = super().read_metadata()
        if self._engine_reader is None:
            self._load_quantization_metadata()
        entry: Any  # there are only tensors
        for fqn, entry in metadata.state_dict_metadata.items():
            if self._engine_reader is None and fqn.endswith("_blocks"):
                self._tensor_full_shapes[fqn + "_quantized"] = entry.size
                entry.size = torch.Size([*entry.size[:-2], entry.size[-2] * entry.size[-1] * 2])
            self._tensor_full_shapes[fqn] = entry.size
        return metadata

    # For places that the caller made; the engine knows all this by itself.

    def _load_quantization_metadata(self) -> None:
        with self.fs.create_stream(self.fs.concat_path(self.path, _metadata_fn), "rb") as stream:
            index: Any = stream
            self._build_weight_scale_mapping(json.load(index).get("weight_map", {}))

    def _build_weight_scale_mapping(self, weight_map: dict[str, str]) -> None:
        self._weight_map = weight_map
        for scales in weight_map:
            for ending, quantized in ((".weight_scale_inv", ".weight"), ("_scales", "_blocks")):
                name = scales.removesuffix(ending) + quantized
                if scales.endswith(ending) and name in weight_map:
                    self._weight_scale_mapping[name] = scales

    def _is_tensor_quantized(self, tensor_fqn: str) -> bool:
        is_scale = tensor_fqn.endswith((".weight_scale_inv", "_scales"))
        return not is_scale and tensor_fqn in self._weight_scale_mapping

    def _stored(self, f: Any, req: ReadItem) -> torch.Tensor:
        fqn = req.storage_index.fqn
        if not self._is_tensor_quantized(fqn):
            return super()._stored(f, req)
        shape = self._tensor_full_shapes.get(fqn)
        if shape is None:
            raise ValueError(f"Could not find full tensor shape for {fqn}")
        scales = self._scales(f, fqn)
        if len(shape) == 2 and not fqn.endswith("_blocks"):
            return self._dequantize_tensor(super()._stored(f, req), scales, req)
        if fqn.endswith("_blocks"):
            return self._dequantize_tensor_mxfp4(f, scales, req)
        raise ValueError("Unsupported quantization types")

    def _scales(self, f: Any, fqn: str) -> torch.Tensor:
        name = self._weight_scale_mapping[fqn]
        file = self._weight_map.get(name)
        if file is None:
            raise ValueError(f"Scale tensor {name} not found in weight_map")
        if file == self._weight_map.get(fqn):
            return cast(torch.Tensor, f.get_tensor(name))
        from safetensors import safe_open

        with safe_open(Path(self.path) / file, framework="pt", device="cpu") as other:
            return cast(torch.Tensor, other.get_tensor(name))

    def _made(self, shape: Any) -> torch.Tensor:
        return torch.empty(shape, dtype=self.target_dtype if self.target_dtype in _ENGINE_TYPES else torch.float32)

    def _dequantize_tensor(self, weight: torch.Tensor, scale_inv: torch.Tensor, req: ReadItem) -> torch.Tensor:
        made = self._made(weight.shape)
        row, column = req.storage_offsets[0], req.storage_offsets[1]
        scales = scale_inv.to(torch.float32).contiguous()
        _engine.dequantize_blocks(weight.contiguous(), row, column, self.block_size, scales, made)
        return made.to(self.target_dtype)

    def _dequantize_tensor_mxfp4(self, f: Any, scales: torch.Tensor, req: ReadItem) -> torch.Tensor:
        fqn = req.storage_index.fqn
        group_bytes = self._tensor_full_shapes[fqn + "_quantized"][-1]
        *prefix, begin = req.storage_offsets
        end = begin + req.lengths[-1]
        box = [slice(at, at + length) for at, length in zip(prefix, req.lengths)]
        box.append(slice(begin // (2 * group_bytes), -(-end // (2 * group_bytes))))
        codes = f.get_slice(fqn)[(*box, slice(None))]
        scales = scales[tuple(box)]
        if codes.shape[:-1] != scales.shape:
            raise AssertionError(f"{codes.shape=} does not match {scales.shape=}")
        rows = scales.shape[:-1].numel()
        made = self._made((rows, req.lengths[-1]))
        _engine.dequantize_mxfp4(
            codes.reshape(rows, -1).contiguous(), scales.reshape(rows, -1).contiguous(), begin % (2 * group_bytes), made
        )
        return made.view(*req.lengths).to(self.target_dtype)
