"""Objects as they stand in a checkpoint, archives of torch.save, and whether unpickling them may run code."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Taken now: cairn.torch.install() puts cairn's in their place.
from torch.distributed.checkpoint.filesystem import FileSystemReader as _TorchsReader
from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader as _TorchsSingleFileReader

from .._errors import error

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


def require_safe_reader(reader: Any) -> None:
    """Error for a reader that unpickles by itself, when only safe objects were asked for."""
    if not _safe or getattr(reader, "runs_nothing", False):
        return
    read = getattr(type(reader), "read_metadata", None)
    own = str(getattr(read, "__module__", "")).startswith("torch.distributed.checkpoint.")
    unpickles = isinstance(reader, _TorchsReader) and (read is _TorchsReader.read_metadata or not own)
    if unpickles or isinstance(reader, _TorchsSingleFileReader):
        raise error(
            "unsupported",
            f"{type(reader).__module__}.{type(reader).__qualname__} reads as torch's own reader does, which unpickles "
            "and can run code; a load with safe=True needs a reader that is cairn's or derived from cairn's",
        )


@contextmanager
def guarded(planner: Any) -> Iterator[None]:
    """In the block the planner is given only bytes that are plain data and tensors, if safe objects were asked for:
    torch's own planners, and users', unpickle whatever they are given."""
    if not _safe or getattr(planner.load_bytes, "is_guard", False):
        yield
        return
    before = vars(planner).get("load_bytes")
    load_bytes = planner.load_bytes

    def checked(read_item: Any, value: io.BytesIO) -> None:
        name = getattr(getattr(read_item, "storage_index", None), "fqn", None)
        try:
            torch.load(value, map_location="cpu", weights_only=True)
        except Exception as failure:  # noqa: BLE001 - bytes of any kind
            message = f"more than plain data and tensors, refused with safe=True: {failure}"
            raise error("unsupported", message, name) from None
        value.seek(0)
        load_bytes(read_item, value)

    checked.is_guard = True  # type: ignore[attr-defined]
    planner.load_bytes = checked
    try:
        yield
    finally:
        if before is None:
            del planner.load_bytes
        else:
            planner.load_bytes = before
