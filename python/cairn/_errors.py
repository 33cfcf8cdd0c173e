"""cairn.Error as Python code raises it: where Python has a word of its own for a failure, it is that too."""

from __future__ import annotations

from typing import Optional

from ._engine import Error


class NoSuchTensor(Error, KeyError):
    """A name that the checkpoint does not have; also a KeyError, as mappings raise it."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class BadIndex(Error, IndexError):
    """An index that a stored tensor cannot be read at; also an IndexError, as arrays raise it."""


def error(code: str, message: str, tensor: Optional[str] = None, kind: type[Error] = Error) -> Error:
    """An Error as the engine makes it."""
    made = kind(f"tensor '{tensor}': {message} ({code})" if tensor else f"{message} ({code})")
    made.code, made.message, made.tensor = code, message, tensor
    return made
