"""What a program shows to somebody at a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union


@dataclass
class Shown:
    returncode: int
    terminal: str  # what came on the stream that was a terminal
    other: str  # and on the other one


def read_all(terminal: int) -> bytes:
    seen = b""
    with contextlib.suppress(OSError):  # nobody holds the other end any more
        while part := os.read(terminal, 65536):
            seen += part
    return seen


def at_terminal(
    stream: str, command: Sequence[Union[str, Path]], columns: int = 80, env: Optional[Mapping[str, str]] = None
) -> Shown:
    """Runs a program whose `stream` ("stdout", "stderr") is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))  # new ones have no width
    with tempfile.TemporaryFile() as file:
        streams = {"stdout": file, "stderr": file, stream: theirs}
        with subprocess.Popen(command, env=env, **streams) as process:
            os.close(theirs)
            seen = read_all(ours)
            process.wait(timeout=1200)
        os.close(ours)
        file.seek(0)
        return Shown(process.returncode, seen.decode(), file.read().decode())
