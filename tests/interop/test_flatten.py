"""Flattening against torch's own: names, paths, values and the way back, for random nested states."""

import copy
import json
import random
import subprocess

import pytest
from programs import PROBE

torch = pytest.importorskip("torch")
from torch.distributed.checkpoint import _nested_dict, _version  # noqa: E402

CASES = 400


class T(torch.Tensor):
    """A tensor that prints as cairn prints one."""

    def __repr__(self):
        return f"tensor(uint8, [{self.numel()}])"

    def __deepcopy__(self, memo):
        return self

    def __setitem__(self, key, value):
        raise TypeError("a path runs through a tensor")

    def __getitem__(self, key):
        raise TypeError("a path runs through a tensor")


def tensor(n):
    return torch.zeros(n, dtype=torch.uint8).as_subclass(T)


def random_value(rng, depth):
    kind = rng.random()
    if depth > 0 and kind < 0.25:
        return random_dict(rng, depth - 1)
    if depth > 0 and kind < 0.5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if depth > 0 and kind < 0.6:
        return tuple(random_value(rng, depth - 1) for _ in range(rng.randrange(3)))
    if kind < 0.72:
        return tensor(rng.randrange(5))
    return rng.choice([None, True, False, 0, -5, 2**40, 0.1, 1e-7, 1e16, float(rng.random()), "x", "it's", "é\n", ""])


def random_dict(rng, depth):
    # Few names, some with dots and some numbers, so that collisions happen.
    names = ["a", "b", "c", "a.b", "0", 0, 1, "w", "", -3]
    keys = rng.sample(names, rng.randrange(5))
    return {k: random_value(rng, depth) for k in keys}


def to_json(v):
    if isinstance(v, torch.Tensor):
        return {"tensor": ["uint8", list(v.shape)]}
    if isinstance(v, dict):
        return {"dict": [[k, to_json(x)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return {type(v).__name__: [to_json(x) for x in v]}
    return v


def torch_flatten(state, rule):
    _version._derived_version = "2_3" if rule == "torch23" else None
    try:
        return _nested_dict.flatten_state_dict(state)
    finally:
        _version._derived_version = None


def has_empty_dict_to_keep(v):
    """Whether the current rule would lose a mapping: the one place where cairn differs on purpose."""
    if isinstance(v, dict):
        return not v or any(has_empty_dict_to_keep(x) for x in v.values())
    return isinstance(v, list) and any(has_empty_dict_to_keep(x) for x in v)


def run_probe(cases):
    out = subprocess.run(
        [PROBE, "flatten"], input=json.dumps([to_json(c) for c in cases]), capture_output=True, text=True, check=True
    )
    return json.loads(out.stdout)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_states_flatten_as_torch_flattens_them(seed):
    rng = random.Random(seed)
    cases = [{}] + [random_dict(rng, rng.randrange(1, 6)) for _ in range(CASES)]
    collisions = kept = plain = 0
    for i, (state, ours) in enumerate(zip(cases, run_probe(cases), strict=True)):
        where = f"seed {seed}, case {i}: {state!r}"
        assert ours["repr"] == repr(state), where
        for rule in ("current", "torch23"):
            got = ours[rule]
            try:
                flat, mapping = torch_flatten(state, rule)
            except ValueError as e:
                assert got["error"].startswith("duplicated flatten key"), where
                if not has_empty_dict_to_keep(state):
                    assert got["error"] == str(e), where
                collisions += 1
                continue
            want = [[name, list(mapping[name]), repr(value)] for name, value in flat.items()]
            if rule == "current" and has_empty_dict_to_keep(state):
                if "error" in got:  # the kept {} has the name of another entry
                    continue
                kept += 1
                extra = [e for e in got["entries"] if e not in want]
                assert all(value == "{}" for _, _, value in extra), where
                assert [e for e in got["entries"] if e in want] == want, where
                continue
            assert "error" not in got, where
            assert got["entries"] == want, where
            try:  # on a copy: a path may run into an entry's own list and change it
                back = repr(_nested_dict.unflatten_state_dict(copy.deepcopy(flat), mapping))
            except (TypeError, AttributeError, KeyError):  # one entry wants a list where another has a dict
                continue
            assert got["unflattened"] == back, where
            plain += 1
    assert collisions > 10 and kept > 10 and plain > 100, (collisions, kept, plain)
