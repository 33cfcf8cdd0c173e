"""What stock PyTorch saves, cairn loads on other ranks in other cuts; and the other way round; bit for bit."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock

import cairn.torch as cairn_dcp
from ranks import run_ranks
from torch_states import KINDS, check, make

SIDES = {"stock": stock, "cairn": cairn_dcp}
RANKS = (1, 2, 4)


def _save(rank: int, folder: str, sides: tuple[str, ...]) -> None:
    warnings.simplefilter("ignore")
    for side, kind in itertools.product(sides, KINDS):
        SIDES[side].save({kind: make(kind, True)}, checkpoint_id=f"{folder}/{side}-{kind}")
        if side == "cairn":
            assert cairn_dcp.last_report()["way"] == "native"


def _load(rank: int, folder: str, pairs: tuple[tuple[str, str], ...]) -> None:
    warnings.simplefilter("ignore")
    for (saver, loader), kind in itertools.product(pairs, KINDS):
        state: dict[str, Any] = {kind: make(kind, False)}
        SIDES[loader].load(state, checkpoint_id=f"{folder}/{saver}-{kind}")
        check(kind, state[kind])
        if loader == "cairn":
            assert cairn_dcp.last_report()["way"] == "native"


@pytest.fixture(scope="module", params=RANKS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"saved-by-{request.param}")
    run_ranks(request.param, _save, str(folder), ("stock", "cairn"))
    return folder


@pytest.mark.parametrize("ranks", RANKS)
def test_each_loads_what_the_other_saved(saved: Path, ranks: int) -> None:
    run_ranks(ranks, _load, str(saved), (("stock", "cairn"), ("cairn", "stock"), ("cairn", "cairn")))
