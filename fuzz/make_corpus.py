"""Writes small real files as fuzzing seeds: DIRECTORY/<target>/<name>.

    python make_corpus.py DIRECTORY

Needs torch, safetensors and numpy. The files are what those packages write, so that mutation starts from
what users have.
"""

import io
import json
import pathlib
import pickle
import struct
import sys
import tempfile
import zipfile

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp


def states():
    """Small states of many shapes."""
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    yield "tensor", weight
    yield "scalars", {"lr": 0.1, "step": 7, "big": 2**70, "name": "adam", "flag": True, "none": None,
        "raw": b"\0\1"}
    yield "nested", {"model": {"w": weight, "b": torch.zeros(())}, "opt": [{"m": weight[0]}, (1, 2, 3)]}
    yield "shared", {"a": weight, "b": weight.t(), "c": weight[1:]}
    yield "parameter", {"p": torch.nn.Parameter(weight.clone())}
    yield "dtypes", [torch.zeros(2, dtype=d) for d in (torch.bool, torch.int8, torch.uint16, torch.bfloat16,
        torch.complex64,
                                                      torch.float8_e4m3fn)]
    yield "empty", {"e": torch.zeros(0, 4), "d": {}, "l": []}
    yield "module", torch.nn.Linear(2, 2, bias=False).state_dict()
    yield "optimizer", torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.5,
        momentum=0.9).state_dict()


def torch_files():
    for name, state in states():
        buffer = io.BytesIO()
        torch.save(state, buffer)
        yield name, buffer.getvalue()


def metadata_files():
    for name, state in states():
        state = state if isinstance(state, dict) else {"value": state}
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, checkpoint_id=folder, no_dist=True)
            path = pathlib.Path(folder, ".metadata")
            yield name, path.read_bytes()
            metadata = pickle.loads(path.read_bytes())
            for protocol in (2, 3, 5):
                yield f"{name}-protocol{protocol}", pickle.dumps(metadata, protocol=protocol)


def safetensors_files():
    weight = torch.arange(6, dtype=torch.float32)
    yield "one", safetensors.torch.save({"w": weight})
    yield "metadata", safetensors.torch.save({"w": weight, "b": torch.zeros((), dtype=torch.bfloat16)},
        {"format": "pt"})
    yield "empty", safetensors.torch.save({})
    yield "names", safetensors.torch.save({"a b": weight, "é\n\"": weight.clone(), "": torch.zeros(0, 2)})


def texts():
    index = {"metadata": {"total_size": 24},
        "weight_map": {"w": "model-00001-of-00002.safetensors", "b": "x/y"}}
    yield "safetensors_index", "plain", json.dumps(index, indent=2)
    yield "safetensors_index", "no-metadata", json.dumps({"weight_map": {}})
    for i, text in enumerate(("4,5|[0:2, ::2]", "4,5,6|[-1]", "7|[:]", "|[]", "3|[1:-1:1]", "2,2|[0, 1]",
        "9| 3:4 ")):
        yield "selection", str(i), text
    for i, text in enumerate(("__0_0.distcp", "a/b/c", "../x", "/x", "a//b", "a\0b", ".", "..", "x/..", "é",
        "a" * 255)):
        yield "path", str(i), text


def letters(*texts):
    """What a peer sends, as fuzz_messages reads it: each text after its length in two bytes."""
    return b"".join(struct.pack("<H", len(text)) + text for text in texts)


def messages():
    """An exchange each (fuzz_messages.cc), with what honest ranks would send."""
    fields = struct.pack("<BBQii", 1, 3, 8, 2, 5) + b"\5wrong" + b"\1f" + b"\1w" + b"\0"
    failures = b"F\1" + struct.pack("<i", 2) + bytes([len(fields)]) + fields
    packed = b"R\3" + b"\1a\1b\1c"
    group = struct.pack("<4Q", 3, 1, 1, 1) + b"abc"
    yield "error", b"\0" + fields
    yield "gathered", b"\1" + letters(b"Rone", b"Rtwo")
    yield "failed", b"\1" + letters(b"E" + fields, b"S")
    yield "gathered-by-all", b"\2" + letters(b"Rone", b"Rtwo")
    yield "unpacked", b"\3" + letters(packed)
    yield "told", b"\4" + letters(b"Rthis")
    yield "told-of-failures", b"\4" + letters(failures)
    yield "scattered", b"\5" + letters(b"Rmine")
    yield "group", b"\6" + letters(group)


def others():
    sharding = {"model.w": {"saved_offsets": [0, 8]}, "s": {"saved_offsets": [], "x": [1]}}
    yield "sharding_info", "plain", json.dumps(sharding).encode()
    yield "json", "strings", json.dumps(["a", "\u00e9\n", "\U0001f600"]).encode()
    yield "json", "nested", json.dumps({"a": [1, -2.5e3, None, {"b": True}]}).encode()
    for i, text in enumerate(("^model\\.=\nmodel.layers.0.w", "0\n" + "a" * 40 + "!", "(a*)*b=$1\naaaab", "4\nx.y.z")):
        yield "name_map", str(i), text.encode()
    yield "reshard", "rows", bytes([2, 8, 4, 3, 0, 0, 2, 0, 0, 4, 0, 1, 1, 0, 2, 0, 8, 0, 4, 2, 3, 1, 2])
    yield "reshard", "holes", bytes([3, 5, 6, 7, 6, 0, 1, 3, 1, 2, 4, 0, 0, 2, 2, 1, 1, 1, 2, 3, 2, 1, 4, 0, 6, 0, 5, 2, 2])
    for name, data in messages():
        yield "messages", name, data


def seeds():
    """(target, name, bytes)"""
    yield from others()
    for name, data in torch_files():
        yield "torch_file", name, data
        yield "zip", name, data
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            member = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            yield "pickle", name, archive.read(member)
    deflated = io.BytesIO()
    with zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"hello " * 20)
    yield "zip", "deflated", deflated.getvalue()
    for protocol in (2, 3, 4, 5):
        plain = {"a": [1, 2.5, -7, 2**40, 2**80], "b": ("x" * 300, b"bytes", None, True), 3: {1, 2}}
        yield "pickle", f"plain-protocol{protocol}", pickle.dumps(plain, protocol=protocol)
    for name, data in metadata_files():
        yield "metadata", name, data
    for name, data in safetensors_files():
        yield "safetensors", name, data
    for target, name, text in texts():
        yield target, name, text.encode()


def main(directory):
    count = 0
    for target, name, data in seeds():
        folder = pathlib.Path(directory, target)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        count += 1
    print(f"{count} seeds")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
