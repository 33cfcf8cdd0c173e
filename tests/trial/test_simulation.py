"""Whole jobs of simulated ranks: their network, clocks and disks go wrong as a seed says, and every promise is looked at."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import not_under_tsan, seed, trial

# Its ranks and their threads are fibers of one thread, under a pthread library of its own.
pytestmark = not_under_tsan("one thread has nobody to race with")

SEEDS = 2**40

# Each has broken a promise once.
PAST = {
    67: "a rank whose writer is kept took the save before for the one it never heard of",
    195: "a coordinator that could not tell a dead rank called a published save failed, and told nobody else",
    221: "a rank that came late did not listen to a coordinator that had left word and gone",
    753: "without checksums a vote did not say for which save it was",
}


def simulate(*words: object) -> dict[str, Any]:
    return trial("simulate", *words, timeout=24 * 3600)[0]


@pytest.mark.parametrize("past", PAST, ids=str)
def test_a_seed_that_broke_a_promise_keeps_it_now(past: int) -> None:
    assert simulate(1, past)["seeds"] == 1


def test_20000_seeds_keep_every_promise() -> None:
    counts = simulate(20_000, seed(SEEDS))
    # A simulation in which little happens proves little.
    assert counts["crashes"] > 5_000 and counts["hangs"] > 1_000 and counts["clock_jumps"] > 1_000
    assert counts["storage_faults"] > 2_000 and counts["disagreements"] > 1_000 and counts["stray_letters"] > 1_000
    assert counts["commits"] > 30_000 and counts["done"] > 100_000
    assert {"cancelled", "conflict", "invalid_argument", "io", "timeout", "unsupported"} <= counts["errors"].keys()


def test_a_seed_does_the_same_every_time() -> None:
    first = seed(SEEDS)
    twice = simulate(1_000, first, "--twice")
    # Nor does it matter which process runs it: addresses differ from one to the next.
    assert simulate(1_000, first)["hash"] == twice["hash"]


def test_1024_ranks_take_five_letters_each() -> None:
    counts = simulate("--ranks", 1024)
    # The save id to everybody; plans there and back; results there, and the word that all is done.
    assert counts["letters"] == 5 * 1023
    # What the coordinator sends and holds grows with the ranks, not with their square.
    few = simulate("--ranks", 64)
    assert counts["bytes_per_rank"] < 1.1 * few["bytes_per_rank"]


@pytest.mark.slow
def test_a_million_seeds_keep_every_promise() -> None:
    seeds = int(os.environ.get("CAIRN_SEEDS", 1_000_000))
    cores = os.cpu_count() or 1
    first = seed(SEEDS)
    share = -(-seeds // cores)
    with ThreadPoolExecutor(cores) as pool:
        parts = list(pool.map(lambda i: simulate(share, first + i * share), range(cores)))
    assert sum(part["seeds"] for part in parts) >= seeds
    print({name: sum(part[name] for part in parts) for name in parts[0] if isinstance(parts[0][name], int)})


@pytest.mark.slow
def test_16384_ranks_take_five_letters_each() -> None:
    memory = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    if memory is None or int(memory[1]) < 8 << 20:
        pytest.skip("8 GiB of memory are needed")
    counts = simulate("--ranks", 16384)
    assert counts["letters"] == 5 * 16383
