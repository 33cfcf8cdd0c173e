"""cairn.Error as Python code raises it: where Python has a word of its own for a failure, it is that too."""

from __future__ import annotations

import pickle
import traceback

from ._engine import Error


class NoSuchTensor(Error, KeyError):
    """A name that the checkpoint does not have; also a KeyError, as mappings raise it."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class BadIndex(Error, IndexError):
    """An index that a stored tensor cannot be read at; also an IndexError, as arrays raise it."""


def encode(exception: BaseException) -> bytes:
    """An exception and where it was raised, for the other ranks. Of one that cannot be pickled they get the text."""
    where = traceback.extract_tb(exception.__traceback__)
    for each in (exception, RuntimeError(f"{type(exception).__qualname__}: {exception}")):
        try:
            encoded = pickle.dumps((each, where))
            pickle.loads(encoded)  # many can be pickled and not be read again
            return encoded
        except Exception:  # noqa: BLE001 - an exception of the caller's may do anything
            continue
    return b""


def decode(encoded: bytes) -> object:
    """What `encode` took: it comes from the ranks of this very job."""
    return pickle.loads(encoded)


def error(code: str, message: str, tensor: str | None = None, kind: type[Error] = Error) -> Error:
    """An Error as the engine makes it."""
    made = kind(f"tensor '{tensor}': {message} ({code})" if tensor else f"{message} ({code})")
    made.code, made.message, made.tensor = code, message, tensor
    return made
