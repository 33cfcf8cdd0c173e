"""Checkpoints of PyTorch, read by a C++ engine: no torch, no model code, nothing in a file is ever run.

    >>> import cairn
    >>> ckpt = cairn.open("tests/golden/torch-2.11-two-ranks")
    >>> ckpt.names()[0]
    'model.w'
    >>> ckpt.info("model.w")["shape"]
    [8, 8]
    >>> dtype, shape, data = ckpt.read("model.w", "[0:2]")  # only the bytes of two rows are read
    >>> dtype, shape, len(data)
    ('float32', (2, 8), 64)

The same call opens a directory that `torch.distributed.checkpoint` wrote, a `torch.save` file, a
`.safetensors` file, and a directory of them. What cannot be done raises `cairn.Error`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._engine import Checkpoint, Error, __version__
from ._engine import open as _open

if TYPE_CHECKING:
    from ._engine import Listing

__all__ = ["Checkpoint", "Error", "__version__", "ls", "open"]


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """Finds out what `path` is and opens it; reads the directory and the metadata only."""
    return _open(os.fspath(path))


def ls(path: str | os.PathLike[str]) -> Listing:
    """What a checkpoint holds, as `cairn ls --json` prints it.

    >>> cairn.ls("tests/golden/torch-2.11-two-ranks")["tensors"][0]["dtype"]
    'float32'
    """
    checkpoint = open(path)
    tensors = checkpoint.tensors()
    objects = checkpoint.objects()
    return {
        "format": checkpoint.format,
        "tensors": tensors,
        "objects": objects,
        "total_bytes": sum(row["bytes"] for row in tensors) + sum(row["bytes"] for row in objects),
    }
