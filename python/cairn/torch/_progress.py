"""A progress bar for saves and loads: on rank 0, when stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch.distributed as dist

from .._bar import Bar

_bar: ContextVar[Bar | None] = ContextVar("cairn_progress", default=None)


@contextmanager
def shown(wanted: bool, title: str) -> Iterator[None]:
    """A bar for the save or load inside, if it is wanted and somebody can see it."""
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if not wanted or rank != 0 or not sys.stderr.isatty():
        yield
        return
    bar = Bar(title)
    before = _bar.set(bar)
    try:
        yield
    finally:
        _bar.reset(before)
        bar.close()


def engine_options() -> dict[str, Any]:
    """What the engine is told about it."""
    bar = _bar.get()
    return {} if bar is None else {"progress": bar}
