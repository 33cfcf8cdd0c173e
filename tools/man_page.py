#!/usr/bin/env python3
"""Prints the man page of `cairn`, made from what its commands say of themselves.

tools/man_page.py build/release/cairn > docs/cairn.1
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def help_of(cairn: str, *command: str) -> str:
    return subprocess.run([cairn, *command, "--help"], text=True, capture_output=True, check=True).stdout


def escaped(text: str) -> str:
    """Text for roff: backslashes and hyphens as they are, no line that begins like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def verbatim(text: str) -> str:
    return f".nf\n{escaped(text.rstrip())}\n.fi\n"


def main() -> int:
    cairn = sys.argv[1]
    version = (ROOT / "VERSION").read_text().strip()
    top = help_of(cairn)
    commands = re.findall(r"^  ([a-z]+) {2,}\S", top[top.index("Subcommands:") :], re.MULTILINE)
    print(f'.TH CAIRN 1 "" "cairn {version}" "User Commands"')
    print(".SH NAME\ncairn \\- look into, verify and convert checkpoints of training jobs")
    print(".SH SYNOPSIS\n.B cairn\nCOMMAND [OPTIONS] PATH ...")
    print(".SH DESCRIPTION\n" + verbatim(top), end="")
    print(
        ".SH PATHS\n"
        + escaped(
            "Wherever a command takes a PATH it takes a URL: file:///data/run is a directory by its absolute path. "
            "In builds with object stores (cairn --version says so), s3://bucket/run is a folder of a bucket, and "
            "https://host/run one of a web server, to read."
        )
    )
    print(".SH COMMANDS")
    for command in commands:
        print(f".SS cairn {command}\n" + verbatim(help_of(cairn, command)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
