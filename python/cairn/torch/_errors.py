"""The engine's errors as PyTorch's users catch them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException, _wrap_exception

from .. import Error
from .._errors import decode


class CheckpointError(CheckpointException, Error):  # type: ignore[misc]  # `failures` is torch's
    """A save or load that failed on some ranks: torch's CheckpointException and cairn's Error in one.

    `failures` says what happened on which rank: what the caller's own code raised there, or the engine. Unlike
    torch's it is an Exception, so that `except Exception` catches it.
    """

    def __init__(self, error: Error, step: str, failures: dict[int, Any] | None = None) -> None:
        if failures is None:
            errors = error.failures or {error.rank or 0: error}
            failures = {rank: _wrapped(each) for rank, each in errors.items()}
        super().__init__(error.step or step, failures)
        self._text = str(error)
        for name in ("code", "message", "doing", "file", "tensor", "offset", "rank", "os_error", "step"):
            setattr(self, name, getattr(error, name))

    def __reduce__(self) -> Any:  # as it is: not through __init__
        return CheckpointError.__new__, (CheckpointError, *self.args), self.__dict__

    def __str__(self) -> str:
        return f"{self._text}\n{super().__str__()}"


def _wrapped(error: Error) -> Any:
    """As torch keeps failures: an exception, and where it was raised."""
    return (decode(error.cause) if error.cause else None) or _wrap_exception(error)


@contextmanager
def as_checkpoint_exception(step: str) -> Iterator[None]:
    try:
        yield
    except CheckpointException:
        raise
    except Error as error:
        raise CheckpointError(error, step) from None
