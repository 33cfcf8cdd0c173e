"""Files as Python sees them: the one module of the package that touches any. The engine does without it."""

from __future__ import annotations

import os


def is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path)


def is_folder(path: str | os.PathLike[str]) -> bool:
    return os.path.isdir(path)
