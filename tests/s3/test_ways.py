"""Every way into a save or load (tests/torch/matrix.py), to and from a bucket."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import warnings
from dataclasses import replace
from typing import Any

import pytest
from place import Place
from programs import seed

torch = pytest.importorskip("torch")

import matrix
from matrix import Way, failure_of, numbers, together
from ranks import hard_limit
from test_every_way import load_kinds, load_own, save_kinds, save_own

pytestmark = pytest.mark.filterwarnings("ignore")

NOT_HERE = {"memory": "is a place, too", "own storage": "opens its files by itself"}
KILLS = 4

# The folder is a URL already.
WAYS = [replace(way, place=lambda url: url) for way in matrix.WAYS.values() if way.name not in NOT_HERE]
every_way = pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in WAYS])


def leave_out(promise: str, way: Way) -> None:
    if reason := matrix.LEFT_OUT.get((promise, way.name)):
        pytest.skip(reason)


@every_way
def test_two_ranks_save_and_three_load(place: Place, way: Way) -> None:
    leave_out("3 kinds", way)
    together(way, 2, save_kinds, place.url, "cairn")
    together(way, 3, load_kinds, place.url)


@every_way
def test_each_rank_loads_its_own(place: Place, way: Way) -> None:
    leave_out("1 rank-local", way)
    for version in (1, 2):
        together(way, 2, save_own, place.url, version)
        together(way, 2, load_own, place.url, version)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")


@every_way
def test_a_save_takes_the_place_of_another_or_leaves_it(place: Place, way: Way) -> None:
    for number in (1, 2):
        way.save(way.state(number), place.url, alone=True)
        assert numbers(way.load(way.state(0), place.url, alone=True)) == {number}
    keys = place.keys()
    bad = Unpicklable() if way.objects else torch.zeros(2, dtype=torch.complex128)
    assert failure_of(lambda: way.save(way.state(3, bad=bad), place.url, alone=True)) is not None
    assert place.keys() == keys
    assert numbers(way.load(way.state(0), place.url, alone=True)) == {2}


def save_on_and_on(way: Way, url: str, first: int, saved: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for number in range(first, first + 10_000):
        way.save(way.state(number), url, alone=True)
        saved.value = number


@every_way
def test_a_killed_save_leaves_the_old_one_or_the_new_one(place: Place, way: Way) -> None:
    if way.name == "Hugging Face":
        pytest.skip("files have fixed names and no description: where nothing is renamed they are written in place")
    context = multiprocessing.get_context("fork")
    saved = context.Value("i", 0, lock=False)
    draw = random.Random(seed())
    way.save(way.state(0), place.url, alone=True)
    for _ in range(KILLS):
        first = saved.value + 1
        process = context.Process(target=save_on_and_on, args=(way, place.url, first, saved))
        process.start()
        until = time.monotonic() + hard_limit()
        while saved.value < first:
            assert process.is_alive() and time.monotonic() < until
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        (found,) = numbers(way.load(way.state(-1), place.url, alone=True))
        assert found in (saved.value, saved.value + 1)
        saved.value = int(found)
    way.save(way.state(-2), place.url, alone=True)
    assert numbers(way.load(way.state(-1), place.url, alone=True)) == {-2}
