"""What the last save or load of this process did, for people who wonder which way it went."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.checkpoint.logger import _dcp_logger

logger = logging.getLogger("cairn")

_last: dict[str, Any] = {}  # replaced, never changed


def last_report() -> dict[str, Any]:
    """The last save or load that ended in this process.

    `way` is "native" (all of it in C++) or "open" (hooks of the user's were called, or the storage is a
    Python one), `because` says why it was open; `seconds`, and for native ones the bytes moved.

    >>> cairn.torch.save(state, checkpoint_id="run/step-1000")
    >>> cairn.torch.last_report()["way"]
    'native'
    """
    return dict(_last)


@contextmanager
def reporting(operation: str, checkpoint_id: Any) -> Iterator[dict[str, Any]]:
    """Collects one operation's report; what the block puts into it is kept when it ends well."""
    report: dict[str, Any] = {"operation": operation, "checkpoint_id": str(checkpoint_id)}
    begin = time.monotonic()
    _dcp_logger.debug({"event": "start", "func": operation, "checkpoint_id": str(checkpoint_id)})
    try:
        yield report
    except BaseException as error:
        _dcp_logger.error({"event": "exception", "func": operation, "error": repr(error)})
        raise
    report["seconds"] = time.monotonic() - begin
    _dcp_logger.debug({"event": "end", "func": operation, "times_spent": int(report["seconds"] * 1e9)})
    logger.info("%s of %s: %s, %.3f s", operation, checkpoint_id, report.get("way"), report["seconds"])
    global _last
    _last = report
