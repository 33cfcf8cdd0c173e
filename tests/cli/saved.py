"""Checkpoints of cairn's own, and the command that looks at them."""

import json
import subprocess

from programs import CLI, PROBE

BUILT = CLI.exists() and PROBE.exists()


def cairn(*args, **options):
    return subprocess.run([CLI, *map(str, args)], capture_output=True, text=True, timeout=60, **options)


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
    subprocess.run([PROBE, "save", path, json.dumps(spec)], check=True, timeout=60)
