#!/usr/bin/env python3
"""Checks that no text file of the project names a folder of somebody's machine.

Prints file:line for each and exits 1 when there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_MACHINE_PATH = re.compile(rb"(?<![A-Za-z0-9_.])/(?:work|root|home|Users)/[A-Za-z0-9_.]")


def check(root: Path) -> list[str]:
    """Every line with such a path, as file:line: text. Binary files are left alone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    problems = []
    for name in listed.stdout.decode().split("\0"):
        path = root / name
        if not name or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.split(b"\n"), 1):
            found = _MACHINE_PATH.search(line)
            if found:
                text = line.strip()[:80].decode(errors="replace")
                problems.append(f"{name}:{number}: path of one machine: {text}")
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
