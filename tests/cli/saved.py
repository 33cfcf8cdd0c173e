"""Checkpoints of cairn's own, and the command that looks at them."""

import json
import os
import subprocess
from urllib.parse import quote

from programs import CLI, PROBE

BUILT = CLI.exists() and PROBE.exists()


as_urls = False  # absolute paths are given as file:// URLs; conftest.py sets it


def cairn(*args, **options):
    words = [_as_url(each) if as_urls else str(each) for each in args]
    return subprocess.run([CLI, *words], capture_output=True, text=True, timeout=600, **options)


def _as_url(arg):
    return f"file://{quote(os.fsencode(arg))}" if str(arg).startswith("/") else str(arg)


def save(path, version=1, ranks=2, collectives=True):
    """Two sharded tensors, a replicated one and two objects; `version` changes every element."""
    cut = {"mesh": [ranks], "cuts": [0]}
    tensors = [
        {"name": "model.w", "dtype": "float32", "shape": [40, 24], "seed": version, **cut},
        {"name": "model.b", "dtype": "int64", "shape": [7], "seed": version + 1},
        {"name": "optim.exp_avg", "dtype": "bfloat16", "shape": [129, 40], "seed": version + 2, **cut},
    ]
    spec = {"ranks": ranks, "tensors": tensors, "collectives": collectives,
            "objects": {"step": version, "notes": {"name": "run", "list": [1, 2.5]}}}
    subprocess.run([PROBE, "save", path, json.dumps(spec)], check=True, timeout=600)
