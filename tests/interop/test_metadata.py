"""read_dcp_metadata and write_dcp_metadata against real torch: what torch pickles, cairn reads and writes, and
torch reads again as the same objects.

cairn_probe rewrites all cases in one run.
"""

import copy
import io
import json
import pathlib
import pickle
import pickletools
import subprocess

import pytest
import torch
import torch.distributed.checkpoint as dcp
from metadata_cases import CASES, extra_attributes, many_chunks
from programs import PROBE
from torch.distributed.checkpoint.metadata import MetadataIndex


def attributes(obj):
    """What an object holds, without those that are None by default: pickles leave them out."""
    return {k: v for k, v in vars(obj).items() if v is not None or not hasattr(type(obj), k)}


def difference(a, b, where="metadata"):
    """The first place where two objects differ, or None."""
    a, b = (str(x) if isinstance(x, pathlib.PurePath) else x for x in (a, b))  # a path may come back as text
    if type(a) is not type(b):
        return f"{where}: {a!r} is a {type(a).__name__}, {b!r} a {type(b).__name__}"
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{where}: keys {list(a)[:5]} and {list(b)[:5]}"
        pairs = [(f"{where} key {k!r}", k, l) for k,
            l in zip(a, b, strict=True) if isinstance(k, MetadataIndex)]
        pairs += [(f"{where}[{k!r}]", a[k], b[k]) for k in a]
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)} items"
        pairs = [(f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif hasattr(a, "__dict__") and not isinstance(a, (torch.dtype, torch.layout, torch.memory_format)):
        left, right = attributes(a), attributes(b)
        if left.keys() != right.keys():
            return f"{where}: attributes {sorted(left)} and {sorted(right)}"
        pairs = [(f"{where}.{k}", v, right[k]) for k, v in left.items()]
    else:
        return None if a == b else f"{where}: {a!r} and {b!r}"
    return next((d for w, x, y in pairs if (d := difference(x, y, w))), None)


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    """name -> (pickle, expected, rewritten file)"""
    folder = tmp_path_factory.mktemp("metadata")
    cases, arguments = {}, []
    for name, make in CASES.items():
        data, expected = make()
        source = folder / f"{name}.in"
        source.write_bytes(data)
        target = folder / name / ".metadata"
        target.parent.mkdir()
        arguments += [source, target]
        cases[name] = (data, expected, target)
    done = subprocess.run([PROBE, "rewrite-metadata", *arguments], capture_output=True, text=True,
        check=False)
    return cases, done.stderr


@pytest.mark.parametrize("name", list(CASES))
def test_torch_reads_what_cairn_rewrote(name, rewritten):
    cases, errors = rewritten
    _, expected, path = cases[name]
    assert path.exists(), next((line for line in errors.splitlines() if f"/{name}.in:" in line), errors)
    assert difference(expected, pickle.loads(path.read_bytes())) is None
    found = dcp.FileSystemReader(path.parent).read_metadata()
    found.storage_meta = expected.storage_meta  # the reader puts an id of its own there
    assert difference(expected, found) is None


@pytest.mark.parametrize("name", list(CASES))
def test_the_rewritten_file_is_well_formed_and_small(name, rewritten):
    cases, _ = rewritten
    data, _, path = cases[name]
    assert path.exists()
    out = path.read_bytes()
    pickletools.dis(out, io.StringIO())
    assert next(arg for op, arg, _ in pickletools.genops(out) if op.name == "PROTO") == 4
    assert len(out) <= len(data) * 1.1


def test_rewriting_twice_changes_nothing(rewritten, tmp_path):
    cases, _ = rewritten
    written = {name: path for name, (_, _, path) in cases.items() if path.exists()}
    arguments = [p for name, path in written.items() for p in (path, tmp_path / name)]
    subprocess.run([PROBE, "rewrite-metadata", *arguments], check=True)
    for name, path in written.items():
        assert (tmp_path / name).read_bytes() == path.read_bytes(), name


def test_the_comparison_sees_differences():
    """The harness first: each of these changes must be noticed."""
    original = extra_attributes()
    def change(f):
        changed = copy.deepcopy(original)
        f(changed)
        return difference(original, changed)
    assert change(lambda m: None) is None
    assert change(lambda m: m.state_dict_metadata["w"].chunks.pop())
    assert change(lambda m: setattr(m.state_dict_metadata["w"].chunks[1], "note", 2))
    assert change(lambda m: setattr(m.state_dict_metadata["w"].properties, "dtype", torch.int8))
    assert change(lambda m: object.__setattr__(next(iter(m.storage_data)), "index", 9))
    assert change(lambda m: setattr(m, "version", None))
    assert change(lambda m: m.planner_data.update(w=("w", 0)))


def test_times_are_printed(tmp_path):
    (tmp_path / "in").write_bytes(pickle.dumps(many_chunks()))
    out = subprocess.run([PROBE, "rewrite-metadata", "--time", tmp_path / "in", tmp_path / "out"],
                         capture_output=True, text=True, check=True).stdout
    times = json.loads(out)
    assert times["read_ms"] > 0 and times["write_ms"] > 0
