"""Saves to a real server through a proxy that does wrong: what was reported is what a client without it loads."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_proxy import KINDS, FaultProxy
from place import Place, version_of
from programs import seed

Say = Callable[[str, object], None]

AT_ONCE = 6  # seeds: mostly they wait before they try again
PATIENCE = 300.0  # seconds of a command; nobody waits that long for a server that answers


class Tried:
    """One checkpoint that is overwritten again and again, through a new proxy each time."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.url = f"{place.url}/{name}"
        self.name = name
        self.there: int | None = None
        self.last = 0
        self.counts: Counter[str] = Counter()

    def run(self, seed: int) -> None:
        draw = random.Random(seed)
        versions = [self.last + 1 + i for i in range(2 if draw.random() < 0.25 else 1)]
        self.last = versions[-1]
        sources = [self._source(version) for version in versions]
        with FaultProxy(self.place.env["AWS_ENDPOINT_URL"], seed) as proxy:
            env = {"AWS_ENDPOINT_URL": proxy.url}
            writers = [self.place.start("convert", source, self.url, "--overwrite", **env) for source in sources]
            ended = [writer.wait_for(PATIENCE) for writer in writers]
            checked = self.place.start("verify", self.url, **env).wait_for(PATIENCE)
        self.counts += proxy.counts
        said = "".join(done.stderr for done in ended)
        assert all(done.returncode in (0, 1) for done in ended), (seed, said)
        done = [v for v, end in zip(versions, ended) if end.returncode == 0]
        lost = [v for v, end in zip(versions, ended) if "(conflict)" in end.stderr]
        self.counts["done"] += len(done)
        self.counts["failed"] += len(versions) - len(done)

        found = self._found()
        # A save whose commit was never answered may have failed, and be there.
        possible: list[int | None] = [*done] or [self.there]
        unsure = [v for v in versions if v not in done and v not in lost]
        assert found in [*possible, *unsure], (seed, found, self.there, said)
        self.counts["unsure"] += found in unsure
        # Verified through the proxy: it is whole, or what is wrong is the way to it, and said in one line.
        assert checked.returncode in (0, 1), (seed, checked.stderr)
        assert "corrupt" not in checked.stderr + checked.stdout, (seed, checked.stderr, checked.stdout)
        self.there = found

    def _source(self, version: int) -> Path:
        return self.place.local(version, mib=9 if version % 25 == 0 else 0)

    def _found(self) -> int | None:
        if not any(key.endswith("/.metadata") for key in self.place.keys(f"{self.name}/")):
            return None
        try:
            return version_of(self.url)
        except AssertionError:
            return version_of(self.url, mib=9)

    def clean_up(self) -> None:
        place = self.place
        place.ok("convert", self._source(1), self.url, "--overwrite")
        place.ok("gc", self.url, "--force")
        place.ok("convert", self._source(1), f"{self.url}-alone")
        left = [key for key in place.keys(f"{self.name}/") if "cairn-probe" not in key]
        records = [key for key in left if ".cairn-commit." in key]
        assert len(records) <= 1 and len(left) - len(records) == len(place.keys(f"{self.name}-alone/")), left
        assert place.bucket.uploads(f"{place.prefix}/{self.name}/") == []
        assert version_of(self.url) == 1


def run_seeds(place: Place, count: int, record_property: Say) -> Counter[str]:
    first = seed()
    tried = [Tried(place, f"run-{i}") for i in range(AT_ONCE)]
    for version in range(1, 2 * count // AT_ONCE + 3):  # not by several threads at once
        tried[0]._source(version)

    def work(i: int) -> None:
        for each in range(first + i, first + count, AT_ONCE):
            tried[i].run(each)
        tried[i].clean_up()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, range(AT_ONCE)))
    counts = sum((each.counts for each in tried), Counter[str]())
    record_property("said", f"{count} seeds of saves through a proxy that does wrong: {dict(counts)}")
    return counts


def test_60_seeds_of_saves_through_a_proxy_that_does_wrong(place: Place, record_property: Say) -> None:
    counts = run_seeds(place, 60, record_property)
    assert counts["done"] >= 30 and sum(counts[kind] for kind in KINDS) >= 60, counts


@pytest.mark.slow
def test_1000_seeds_of_saves_through_a_proxy_that_does_wrong(place: Place, record_property: Say) -> None:
    counts = run_seeds(place, int(os.environ.get("CAIRN_S3_SEEDS", "1000")), record_property)
    assert all(counts[kind] > 0 for kind in KINDS), counts
