"""Checkpoints of PyTorch, read and written by a C++ engine: no torch, and nothing in a file is ever run.

    >>> import cairn
    >>> ckpt = cairn.open("tests/golden/torch-2.11-two-ranks")
    >>> ckpt["model.w"].shape
    (8, 8)
    >>> ckpt["model.w"][0:2, ::4]  # only the bytes of two rows are read
    array([[ 0.,  4.],
           [ 8., 12.]], dtype=float32)
    >>> ckpt.object("lr")
    0.5

`open` takes a directory that `torch.distributed.checkpoint` or cairn wrote, a `torch.save` file, a
`.safetensors` file, and a directory of them. `save` and `load` are for nested dicts of numpy arrays;
`cairn.torch` is `torch.distributed.checkpoint` on the same engine. What cannot be done raises `cairn.Error`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._checkpoint import Checkpoint, StoredTensor
from ._converting import convert
from ._engine import Error, __version__
from ._plain import gc, load, save, verify

if TYPE_CHECKING:
    from ._engine import Listing

__all__ = [
    "Checkpoint",
    "Error",
    "StoredTensor",
    "__version__",
    "convert",
    "gc",
    "load",
    "ls",
    "open",
    "save",
    "verify",
]


def open(path: str | os.PathLike[str]) -> Checkpoint:
    """Finds out what `path` is and opens it; reads the directory and the metadata only."""
    return Checkpoint(path)


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
