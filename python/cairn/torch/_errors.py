"""The engine's errors as PyTorch's users catch them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from torch.distributed.checkpoint.api import CheckpointException, _wrap_exception

from .. import Error


class CheckpointError(CheckpointException, Error):
    """A save or load that failed on some ranks: torch's CheckpointException and cairn's Error in one.

    `failures` says what happened on which rank. Unlike torch's it is an Exception, so that `except Exception`
    catches it.
    """

    def __init__(self, error: Error, step: str) -> None:
        failures = error.failures or {error.rank or 0: error}
        super().__init__(error.step or step, {rank: _wrap_exception(each) for rank, each in failures.items()})
        self._text = str(error)
        for name in ("code", "message", "file", "tensor", "offset", "rank", "os_error", "step"):
            setattr(self, name, getattr(error, name))

    def __str__(self) -> str:
        return f"{self._text}\n{super().__str__()}"


@contextmanager
def as_checkpoint_exception(step: str) -> Iterator[None]:
    try:
        yield
    except CheckpointException:
        raise
    except Error as error:
        raise CheckpointError(error, step) from None
