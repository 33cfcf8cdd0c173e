"""Whole tensors out of the shards that ranks wrote: torch's consolidation, streaming through the engine."""

from __future__ import annotations

import math
import os
from typing import Any

import torch.distributed as dist

from .. import Error, _engine
from . import _dist
from ._hf_utils import offer_safetensors


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


def _calculate_max_contiguous_elements(indices: list[int], sub_tensor_shape: list[int], tensor_shape: list[int]) -> int:
    """How many elements of a part, from a place in it on, lie one after the other in the whole tensor too."""
    if not indices or not sub_tensor_shape or not tensor_shape:
        raise ValueError("Input lists cannot be empty")
    if not len(indices) == len(sub_tensor_shape) == len(tensor_shape):
        raise ValueError(
            f"All input lists must have the same length. Got indices: {len(indices)}, sub_tensor_shape: "
            f"{len(sub_tensor_shape)}, tensor_shape: {len(tensor_shape)}"
        )
    for dim, (index, part) in enumerate(zip(indices, sub_tensor_shape)):
        if index >= part:
            raise ValueError(
                f"Index {index} at dimension {dim} is out of bounds for sub-tensor shape {sub_tensor_shape}"
            )
    for dim, (part, whole) in enumerate(zip(sub_tensor_shape, tensor_shape)):
        if part > whole:
            raise ValueError(f"Sub-tensor dimension {part} at position {dim} exceeds tensor dimension {whole}")
    # Each dimension that is begun at 0 and taken whole lets the one before it go on; at most three are joined.
    elements = sub_tensor_shape[-1] - indices[-1]
    for depth in range(2, min(len(indices), 3) + 1):
        inner = slice(1 - depth, None)
        if indices[1 - depth] != 0 or list(sub_tensor_shape[inner]) != list(tensor_shape[inner]):
            break
        elements = (sub_tensor_shape[-depth] - indices[-depth]) * math.prod(sub_tensor_shape[inner])
    return elements


def _write_sub_tensor_to_file_optimized(
    full_tensor_mv: memoryview,
    sub_tensor_bytes: bytes,
    element_size: int,
    tensor_shape: list[int],
    sub_tensor_offsets: list[int],
    sub_tensor_shape: list[int],
) -> None:
    """Puts the bytes of a part where they belong in the bytes of the whole tensor."""
    if not tensor_shape or not sub_tensor_shape:
        return
    done, total = 0, math.prod(sub_tensor_shape)
    while done < total:
        indices: list[int] = []
        rest = done
        for size in reversed(sub_tensor_shape):
            rest, index = divmod(rest, size)
            indices.insert(0, index)
        run = _calculate_max_contiguous_elements(indices, sub_tensor_shape, tensor_shape)
        place = 0
        for index, offset, size in zip(indices, sub_tensor_offsets, tensor_shape):
            place = place * size + index + offset
        begin, length = done * element_size, run * element_size
        full_tensor_mv[place * element_size : place * element_size + length] = sub_tensor_bytes[begin : begin + length]
        done += run
