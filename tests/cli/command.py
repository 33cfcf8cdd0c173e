"""The command, run as people and scripts run it, and states to save for it."""

import json
import warnings

import pytest
from programs import CLI
from saved import cairn

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp

built = pytest.mark.skipif(not CLI.exists(), reason=f"{CLI} has not been built")


def ok(*args):
    result = cairn(*args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def json_of(*args):
    return json.loads(ok(*args, "--json"))


def failure(code, *args):
    """Runs a command that must fail: one line on stderr, and the same as JSON when asked."""
    result = cairn(*args)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr.startswith("cairn: ") and result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
    return result.stderr


def tensors():
    torch.manual_seed(7)
    return {
        "model.embed.weight": torch.randn(40, 30),
        "model.layers.0.w": torch.randn(8, 6, 4).to(torch.bfloat16),
        "model.layers.0.b": torch.arange(6, dtype=torch.int64),
        "model.layers.1.w": torch.randn(8, 6, 4).to(torch.float8_e4m3fn),
        "model.layers.1.b": torch.tensor([True, False, True]),
        "model.layers.10.w": torch.zeros(0, 4),
        "scale": torch.tensor(0.25, dtype=torch.float64),
    }


def nested(flat):
    state = {}
    for name, value in flat.items():
        *above, last = name.split(".")
        place = state
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return state


def save_dcp(state, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path, no_dist=True)


KINDS = ["dcp", "torch", "safetensors", "huggingface"]
