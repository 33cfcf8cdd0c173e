"""cairn.Error as Python code raises it: where Python has a word of its own for a failure, it is that too."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

from ._engine import Error

_MOST = 60_000  # bytes; the engine takes 64 KiB to other ranks
_SHORT = 10_000


class NoSuchTensor(Error, KeyError):
    """A name that the checkpoint does not have; also a KeyError, as mappings raise it."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class BadIndex(Error, IndexError):
    """An index that a stored tensor cannot be read at; also an IndexError, as arrays raise it."""


def encode(exception: BaseException) -> bytes:
    """An exception and where it was raised, for the other ranks. Of one that cannot be pickled, or is too large to
    travel, they get the text."""
    where = traceback.extract_tb(exception.__traceback__)
    return _pickled(lambda: (exception, where)) or _pickled(lambda: (RuntimeError(_text_of(exception)), where))


def _text_of(exception: BaseException) -> str:
    return f"{type(exception).__qualname__}: {str(exception)[:_SHORT]}"


def _pickled(make: Callable[[], object]) -> bytes:
    try:
        encoded = pickle.dumps(make())
        pickle.loads(encoded)  # many can be pickled and not be read again
    except Exception:  # noqa: BLE001 - an exception of the caller's may do anything
        return b""
    return encoded if len(encoded) <= _MOST else b""


def decode(encoded: bytes) -> Any:
    """What `encode` took: it comes from the ranks of this very job. None of a class that this rank cannot import."""
    try:
        return pickle.loads(encoded)
    except Exception:  # noqa: BLE001
        return None


def error(code: str, message: str, tensor: str | None = None, kind: type[Error] = Error) -> Error:
    """An Error as the engine makes it."""
    made = kind(f"tensor '{tensor}': {message} ({code})" if tensor else f"{message} ({code})")
    made.code, made.message, made.tensor = code, message, tensor
    return made
