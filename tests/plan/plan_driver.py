"""Drives the C++ planner through cairn_probe: one process, one JSON line per question and per answer."""

from __future__ import annotations

import json
import os
import random
import subprocess

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from programs import PROBE

# The seed of a run comes from CAIRN_SEED; a failing case prints the number that made it.
settings.register_profile(
    "plan",
    max_examples=int(os.environ.get("CAIRN_PLAN_CASES", "2000")),
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],  # numbers that seed a generator have nothing to shrink
    suppress_health_check=list(HealthCheck),
)

SEED = int(os.environ.get("CAIRN_SEED", "20251"))


def cases(test):
    """Runs a test with many random.Random, one per case, as its argument `rng`."""
    many = given(rng=st.integers(0, 2**64 - 1).map(NumberedRandom))(test)
    return seed(SEED)(settings.get_profile("plan")(many))


class NumberedRandom(random.Random):
    """A generator that says its seed where hypothesis prints it."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number

    def __repr__(self):
        return f"NumberedRandom({self.number})"


class Probe:
    """`probe(op=..., ...)` is the answer to one question."""

    def __init__(self, command="plan"):
        self.process = subprocess.Popen([PROBE, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"cairn_probe died on {request}"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=600) == 0
