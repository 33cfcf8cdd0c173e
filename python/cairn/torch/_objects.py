"""Objects as they stand in a checkpoint: archives of torch.save."""

from __future__ import annotations

import io
from typing import Any

import torch

_safe = False


def set_safe(safe: bool) -> None:
    """With True, objects that are more than plain data and tensors are refused, here and everywhere."""
    global _safe
    _safe = safe


def is_safe() -> bool:
    return _safe


def encode(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def decode(archive: bytes | io.BytesIO) -> Any:
    """Unpickles as DCP does, which runs what the pickle says, unless safe objects were asked for."""
    stream = archive if isinstance(archive, io.BytesIO) else io.BytesIO(archive)
    return torch.load(stream, weights_only=_safe)
