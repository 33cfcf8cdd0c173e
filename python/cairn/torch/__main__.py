"""Runs a script with cairn installed: `python -m cairn.torch train.py ...`, `torchrun -m cairn.torch train.py ...`."""

import runpy
import sys
from pathlib import Path

from . import install


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m cairn.torch [-m] SCRIPT [ARGUMENT...]\n\n" + (__doc__ or ""))
        sys.exit(0 if len(sys.argv) > 1 else 2)
    install()
    sys.argv.pop(0)
    if sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))  # as Python does for a script
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
