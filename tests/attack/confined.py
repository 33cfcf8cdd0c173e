"""Reads hostile files as a user would, in a process that the system ends when it asks for more than files.

    python confined.py DIRECTORY    with jobs as lines of stdin: PATH

After the imports a system call filter is set: starting a program or a process and reaching for the network kill the
process (SIGSYS); threads are allowed. Memory is limited too (MEMORY): a size that a file only claims is noticed. Then
each path is opened, listed, read tensor by tensor and object by object, verified, and converted to DIRECTORY. What
cairn refuses is a cairn.Error; anything else ends the run. A line on stdout tells of every path: "PATH<tab>outcomes",
one word for each of open, read, verify, to dcp, to safetensors. With the argument --escape as well the process starts a program, to show that the filter bites.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import cairn
import numpy  # noqa: F401  (loaded before the filter is set)

# x86-64 and aarch64 system call numbers: what starts programs, and what reaches the network.
CALLS = {
    "x86_64": {"kill": [57, 58, 59, 322, 41, 42, 43, 49, 50, 53, 288, 101, 310, 311], "clone": 56, "clone3": 435},
    "aarch64": {"kill": [221, 281, 198, 203, 202, 200, 201, 199, 242, 117, 270, 271], "clone": 220, "clone3": 435},
}[os.uname().machine]
CLONE_THREAD = 0x00010000
MEMORY = 4 << 30  # of addresses, threads' stacks and what Python maps included
LOAD, EQUAL, BIT_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, KILL_PROCESS, NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050000 | 38


def confine() -> None:
    """From here on: no execve, no fork, no clone but for a thread, no socket, connect, ptrace."""
    program = [(LOAD, 0, 0, 0)]
    for number in CALLS["kill"]:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, KILL_PROCESS)]
    # clone3 keeps its flags in memory, where a filter cannot look; the C library then takes clone.
    program += [(EQUAL, 0, 1, CALLS["clone3"]), (RETURN, 0, 0, NO_SUCH_CALL)]
    program += [(EQUAL, 0, 3, CALLS["clone"]), (LOAD, 0, 0, 16), (BIT_SET, 1, 0, CLONE_THREAD), (RETURN, 0, 0, KILL_PROCESS)]
    program += [(RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in program))
    whole = struct.pack("<H6xQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.create_string_buffer(whole), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def attempt(action: object) -> str:
    try:
        action()
    except cairn.Error as e:
        assert e.code != "internal", e
        return e.code
    return "ok"


def read_all(path: Path) -> None:
    """Everything in it; the first error is raised when all was tried."""
    checkpoint = cairn.open(path)
    errors = []
    for name in checkpoint.names():
        try:
            checkpoint.read(name)
        except cairn.Error as e:
            errors.append(e)
    for row in checkpoint.objects():
        try:
            checkpoint.object(row["name"])
        except cairn.Error as e:
            errors.append(e)
    if errors:
        raise errors[0]


def verified(path: Path) -> str:
    try:
        return "ok" if cairn.verify(path)["ok"] else "problems"
    except cairn.Error as e:
        return e.code


def outcomes(path: Path, scratch: Path) -> list[str]:
    done = [attempt(lambda: cairn.ls(path)), attempt(lambda: read_all(path)), verified(path)]
    for to in ("dcp", "safetensors"):
        options = {"skip_objects": True, "durable": False, "verify": False}
        done.append(attempt(lambda to=to: cairn.convert(path, scratch / "out" / to, to=to, **options)))
    shutil.rmtree(scratch / "out", ignore_errors=True)
    return done


def main() -> None:
    scratch = Path(sys.argv[1])
    paths = [Path(line) for line in sys.stdin.read().splitlines()]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    confine()
    if "--escape" in sys.argv:
        subprocess.run(["true"], check=False)
    for path in paths:
        print(path, end="\t", flush=True)
        print(*outcomes(path, scratch), flush=True)


if __name__ == "__main__":
    main()
