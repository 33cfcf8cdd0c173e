"""A progress bar on stderr: tqdm's where it is installed."""

from __future__ import annotations

import sys
from typing import Any


class Bar:
    """Called by the engine's threads, one at a time, with bytes."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._drawn: Any | None = None  # tqdm's bar
        self._percent = -1

    def __call__(self, phase: str, done: int, total: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            self._draw_plainly(done, total)
            return
        if self._drawn is None:
            self._drawn = tqdm(total=total, desc=self._title, unit="B", unit_scale=True, leave=False, file=sys.stderr)
        self._drawn.total = total
        self._drawn.update(done - self._drawn.n)

    def _draw_plainly(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if percent != self._percent:
            self._percent = percent
            print(f"\r{self._title} {percent:3d} %", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.close()
        elif self._percent >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
