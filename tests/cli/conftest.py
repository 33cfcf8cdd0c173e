"""Checkpoints that torch and safetensors wrote, made once."""

import fractions
import json
import math

import pytest
import saved


@pytest.fixture(autouse=True, params=["path", "file URL"])
def _way_of_naming(request, monkeypatch):
    """Every command is tried with paths and with URLs."""
    monkeypatch.setattr(saved, "as_urls", request.param == "file URL")


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """The same tensors in each of the four formats: format name -> path."""
    from command import nested, save_dcp, tensors, torch

    safetensors = pytest.importorskip("safetensors.torch")
    root = tmp_path_factory.mktemp("stored")
    flat = tensors()
    save_dcp(nested(flat), root / "dcp")
    torch.save(nested(flat), root / "state.pt")
    safetensors.save_file(flat, root / "model.safetensors")
    folder = root / "hf"
    folder.mkdir()
    names = list(flat)
    parts = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for file, part in parts.items():
        safetensors.save_file({n: flat[n] for n in part}, folder / file)
    index = {"metadata": {}, "weight_map": {n: file for file, part in parts.items() for n in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return {"dcp": root / "dcp", "torch": root / "state.pt", "safetensors": root / "model.safetensors", "huggingface": folder}


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """One DCP checkpoint with everything that is hard to show."""
    from command import save_dcp, torch

    path = tmp_path_factory.mktemp("odd") / "odd"
    with_specials = torch.randn(50)
    with_specials[3], with_specials[4], with_specials[5], with_specials[6] = math.nan, math.inf, -math.inf, 0.0
    state = {
        "specials": with_specials,
        "all_nan": torch.full((3,), math.nan),
        "big": torch.arange(5000.0).reshape(50, 100),
        "wide": torch.tensor([-(2**63), 2**63 - 1, 0]),
        "unsigned": torch.tensor([0, 2**64 - 1], dtype=torch.uint64),
        "complex": torch.tensor([3 + 4j, 0j]),
        "list[0]": torch.arange(4),
        "evil\x1b[31m\nname": torch.ones(2),
        "ünïcode": torch.ones(1),
        'quote"back\\slash': torch.ones(1),
        "text": "line\n\x1b[31mred",
        "numbers": [1, 2.5, None, True],
        "fraction": fractions.Fraction(22, 7),
    }
    save_dcp(state, path)
    return path
