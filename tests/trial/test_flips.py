"""Damage of every kind, and who finds it. What each kind promises stands in flips.cc."""

from __future__ import annotations

import os

import pytest
from programs import seed, trial

OURS = ["metadata", "distcp", "manifest"]  # with a manifest to check against
OTHERS = ["torch", "safetensors", "index"]  # in formats of others
SHORT = {"metadata": 10_000, "distcp": 10_000, "manifest": 10_000, "torch": 10_000, "safetensors": 10_000,
         "index": 10_000, "cuts": 3000, "files": 0, "buffers": 1000}
FLIPS = int(os.environ.get("CAIRN_FLIPS", 100_000))


@pytest.mark.parametrize("kind", [*OURS, *OTHERS, "cuts", "files"])
def test_damage_is_found_or_does_no_harm(kind: str) -> None:
    counts = trial("flips", kind, SHORT[kind], seed())[0]
    assert counts["tried"] > 0.9 * SHORT[kind]
    if kind not in OTHERS:
        assert counts["found_by_verify"] == counts["tried"] and counts["loads_wrong"] == 0


def test_bits_that_flip_in_buffers_are_found() -> None:
    counts = trial("flips", "buffers", SHORT["buffers"], seed())[0]
    assert counts["written"][0] == counts["written"][1]
    assert counts["converted"][1] > 0.5 * counts["converted"][0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OURS, *OTHERS, "cuts"])
def test_100000_flips_of_each_kind(kind: str) -> None:
    trial("flips", kind, FLIPS, seed(), timeout=3600)
