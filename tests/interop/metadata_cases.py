"""Metadata of every kind that torch has written, as pickles: the cases of test_metadata.py."""

import copy
import copyreg
import io
import pathlib
import pickle
import pickletools
import struct
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import metadata as old_properties
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

CASES = {}  # name -> function that returns (pickle, what torch must read from the rewritten file)


def case(function):
    CASES[function.__name__] = function
    return function


def simple(function):
    """A case whose pickle is a plain pickle of the metadata it returns."""
    def run():
        metadata = function()
        return pickle.dumps(metadata, protocol=4), metadata
    CASES[function.__name__] = run
    return function


# --- building metadata --------------------------------------------------------------------------------


def tensor(shape, dtype=torch.float32, rows=None, **properties):
    """A tensor cut along its first dimension into pieces of `rows`."""
    shape = torch.Size(shape)
    chunks = []
    if rows is None or not shape:
        chunks.append(ChunkStorageMetadata(torch.Size([0] * len(shape)), shape))
    else:
        for start in range(0, shape[0], rows):
            offsets = torch.Size([start, *[0] * (len(shape) - 1)])
            chunks.append(ChunkStorageMetadata(offsets,
                torch.Size([min(rows, shape[0] - start), *shape[1:]])))
    return TensorStorageMetadata(TensorProperties(dtype=dtype, **properties), shape, chunks)


def metadata_of(entries, **fields):
    """Metadata with a place for every chunk and object, as FileSystemWriter would leave it."""
    storage, at = {}, 0
    for rank, (name, entry) in enumerate(entries.items()):
        file = f"__{rank % 4}_0.distcp"
        if isinstance(entry, BytesStorageMetadata):
            storage[MetadataIndex(name)] = _StorageInfo(file, at, 1000)
            at += 1000
            continue
        for i, chunk in enumerate(entry.chunks):
            storage[MetadataIndex(name, chunk.offsets, i)] = _StorageInfo(file, at, 1577)
            at += 1577
    planner = {name: tuple(int(p) if p.isdigit() else p for p in name.split(".")) for name in entries}
    meta = StorageMeta(checkpoint_id=pathlib.PosixPath("/data/run/step-1000"), save_id="a-b-c")
    values = {"planner_data": planner, "storage_data": storage, "storage_meta": meta, "version": "1.0.0"}
    return Metadata(entries, **{**values, **fields})


def forged(data, modules):
    """The same pickle with other module names: (module, class) -> module, or module -> module."""
    ops = list(pickletools.genops(data))
    ends = [at for _, _, at in ops[1:]] + [len(data)]
    out = bytearray()
    for i, ((op, arg, at), end) in enumerate(zip(ops, ends, strict=True)):
        if op.name == "FRAME":
            continue
        if op.name in ("SHORT_BINUNICODE", "BINUNICODE"):
            following = [a for o, a, _ in ops[i + 1:i + 4] if o.name in ("SHORT_BINUNICODE", "BINUNICODE")]
            name = following[0] if following else None
            arg = modules.get((arg, name), modules.get(arg, arg))
            raw = arg.encode()
            out += b"X" + struct.pack("<I", len(raw)) + raw
        elif op.name == "GLOBAL":
            module, name = arg.split(" ")
            module = modules.get((module, name), modules.get(module, module))
            out += f"c{module}\n{name}\n".encode()
        else:
            out += data[at:end]
    return bytes(out)


class Reducing(pickle.Pickler):
    """A pickler that writes some objects in another way: `how` returns a reduce tuple or NotImplemented."""

    def __init__(self, file, how, protocol=4):
        super().__init__(file, protocol)
        self.how = how

    def reducer_override(self, obj):
        return self.how(obj)


def dumps_with(metadata, how, protocol=4):
    buffer = io.BytesIO()
    Reducing(buffer, how, protocol).dump(metadata)
    return buffer.getvalue()


# --- the cases ----------------------------------------------------------------------------------------

DTYPES = [getattr(torch, n) for n in (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex32 complex64 "
    "complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2").split()]


@simple
def all_dtypes():
    return metadata_of({f"t.{str(d)[6:]}": tensor((4, 2), d) for d in DTYPES})


@simple
def scalars_and_empties():
    return metadata_of({"zero_d": tensor(()), "empty": tensor((0,)), "empty_2d": tensor((3, 0)),
        "one": tensor((1,))})


@simple
def blobs():
    return metadata_of({"step": BytesStorageMetadata(), "opt.param_groups.0.lr": BytesStorageMetadata(),
        "w": tensor((2,))})


@simple
def many_chunks():
    return metadata_of({"w": tensor((4096, 8), rows=4), "v": tensor((17, 3, 2), rows=5)})


@simple
def many_entries():
    return metadata_of({f"model.layers.{i}.weight": tensor((8, 8), rows=2) for i in range(700)})


@simple
def nothing():
    return metadata_of({})


@simple
def high_rank():
    return metadata_of({f"r{n}": tensor((1,) * n) for n in range(9)} | {"r64": tensor((1,) * 64)})


@simple
def large_numbers():
    md = metadata_of({"w": tensor((2**33, 3))})
    index = next(iter(md.storage_data))
    md.storage_data[index] = _StorageInfo("__0_0.distcp", 2**31, 2**40)
    md.storage_data[MetadataIndex("w", (2**32, 0), 1)] = _StorageInfo("__0_0.distcp", 2**31 - 1, 2**62)
    md.storage_data[MetadataIndex("w", (255, 0), 2)] = _StorageInfo("__0_0.distcp", 255, 256)
    md.storage_data[MetadataIndex("w", (256, 0), 300)] = _StorageInfo("__0_0.distcp", 65535, 65536)
    return md


@simple
def planner_none():
    return metadata_of({"w": tensor((2,))}, planner_data=None)


@simple
def planner_empty():
    return metadata_of({"w": tensor((2,))}, planner_data={})


@simple
def planner_numbers_and_depth():
    paths = {"a.0.b.12": ("a", 0, "b", 12), "x": ("x",), "n.-1": ("n", -1),
        "deep": tuple("abcdefghijklmnop"), "": ("",)}
    return metadata_of({"w": tensor((2,))}, planner_data=paths)


@simple
def planner_list():
    return metadata_of({"w": tensor((2,))},
        planner_data=[1, 2.5, None, True, "text", b"raw", ("t",), {"k": [1]}, 2**70])


@simple
def planner_mixed_dict():
    return metadata_of({"w": tensor((2,))}, planner_data={"w": ("w",), "other": 7})


@simple
def planner_foreign_object():
    return metadata_of({"w": tensor((2,))}, planner_data={"cfg": Foreign(3, ["a", torch.float16])})


@simple
def planner_set():
    return metadata_of({"w": tensor((2,))}, planner_data={"names": {"a"}})


@simple
def storage_meta_absent():
    return metadata_of({"w": tensor((2,))}, storage_meta=None)


@simple
def storage_meta_empty():
    return metadata_of({"w": tensor((2,))}, storage_meta=StorageMeta())


@simple
def storage_meta_text():
    return metadata_of({"w": tensor((2,))},
        storage_meta=StorageMeta("s3://bucket/run", "s", "l", ["m1", "m2"]))


@simple
def version_absent():
    return metadata_of({"w": tensor((2,))}, version=None)


@simple
def transforms():
    md = metadata_of({"w": tensor((8,), rows=2)})
    for i, index in enumerate(md.storage_data):
        lists = (None, ["zstd"], ["zstd", "rot13"], [])
        md.storage_data[index] = _StorageInfo("__0_0.distcp", i, 10, lists[i % 4])
    return md


@simple
def properties_of_all_kinds():
    formats = (torch.contiguous_format, torch.channels_last, torch.preserve_format)
    return metadata_of({f"p{i}{g}{p}": tensor((2,), memory_format=f, requires_grad=g, pin_memory=p)
                        for i, f in enumerate(formats) for g in (False, True) for p in (False, True)})


@simple
def unusual_names():
    names = ["", " ", "é", "a.b.c", "x" * 255, "x" * 256, "x" * 4096, "\U0001F600", "tab\tnew\nline", "'\"\\"]
    md = metadata_of({n: tensor((2,)) for n in names}, planner_data={n: (n,) for n in names})
    return md


@simple
def files_in_folders():
    md = metadata_of({"w": tensor((8,), rows=2)})
    for i, index in enumerate(md.storage_data):
        md.storage_data[index] = _StorageInfo(f"rank{i}/part.distcp", 0, 10)
    return md


@simple
def shared_objects():
    size = torch.Size([4])
    chunk = ChunkStorageMetadata(torch.Size([0]), size)
    one = TensorStorageMetadata(TensorProperties(), size, [chunk])
    return metadata_of({"a": one, "b": one, "c": TensorStorageMetadata(one.properties, size, [chunk])})


@simple
def extra_attributes():
    md = metadata_of({"w": tensor((4,), rows=2), "b": BytesStorageMetadata()})
    md.trainer = {"name": "x", "steps": [1, 2]}
    md.storage_meta.region = "eu"
    md.state_dict_metadata["w"].note = ("kept", 1)
    md.state_dict_metadata["w"].chunks[1].note = 2.5
    md.state_dict_metadata["b"].note = None
    for info in md.storage_data.values():
        info.__dict__["crc"] = 2**31
    return md


@simple
def extra_foreign_attribute():
    md = metadata_of({"w": tensor((4,), rows=2)})
    md.trainer = Foreign(1, {"a": Foreign(2, [])})
    return md


@simple
def real_save():
    return real_metadata({"model": torch.nn.Linear(3, 2).state_dict(), "step": 7,
        "lists": [1, [torch.zeros(2)]]})


@simple
def rank_local_file():
    return metadata_of({"w": tensor((4,), rows=2)},
        storage_meta=StorageMeta(pathlib.PosixPath("/x"), "s", None, ["rank0"]))


@case
def protocol_2():
    return with_protocol(2)


@case
def protocol_3():
    return with_protocol(3)


@case
def protocol_5():
    return with_protocol(5)


def with_protocol(protocol):
    md = metadata_of({"w": tensor((600, 8), rows=2), "b": BytesStorageMetadata(), "big": tensor((2**40,))})
    return pickle.dumps(md, protocol=protocol), md


@case
def python_pickler():
    """CPython's pickler in Python: no frames of 64 KiB, other memo habits."""
    md = metadata_of({"w": tensor((600, 8), rows=2), "b": BytesStorageMetadata()})
    buffer = io.BytesIO()
    pickle._Pickler(buffer, 4).dump(md)
    return buffer.getvalue(), md


@case
def optimized():
    md = metadata_of({"w": tensor((600, 8), rows=2), "b": BytesStorageMetadata()})
    return pickletools.optimize(pickle.dumps(md, protocol=4)), md


@case
def enum_by_name():
    md = properties_of_all_kinds()
    def how(obj):
        return (getattr, (type(obj), obj.name)) if isinstance(obj, _MEM_FORMAT_ENCODING) else NotImplemented
    return dumps_with(md, how), md


@case
def enum_by_value():
    md = properties_of_all_kinds()
    def how(obj):
        return (type(obj), (obj.value,)) if isinstance(obj, _MEM_FORMAT_ENCODING) else NotImplemented
    return dumps_with(md, how), md


@case
def properties_of_six():
    """Nightlies of August 2026 append the strides. A torch that knows five must be able to read the rewrite, and
    nothing is lost: the sixth value is an attribute there."""
    md = metadata_of({"w": tensor((4, 4), rows=2)})
    def how(obj):
        if not isinstance(obj, TensorProperties):
            return NotImplemented
        return copyreg.__newobj__, (TensorProperties,), (*obj.__getstate__(), (4, 1))
    data = dumps_with(md, how)
    md.state_dict_metadata["w"].cairn_properties_extra = [(4, 1)]
    return data, md


@case
def pathlib_of_python_3_13():
    md = metadata_of({"w": tensor((2,))})
    return forged(pickle.dumps(md, protocol=4), {"pathlib": "pathlib._local"}), md


@case
def torch_1_13():
    return old_paths(4, "torch.distributed._shard.checkpoint")


@case
def torch_1_13_protocol_2():
    return old_paths(2, "torch.distributed._shard.checkpoint")


@case
def torch_2_0():
    return old_paths(4, "torch.distributed.checkpoint")


def old_paths(protocol, package):
    """Written before torch 2.3: other modules, no storage_meta, version or modules fields."""
    md = metadata_of({"w": tensor((4, 4), rows=2), "b": BytesStorageMetadata()}, storage_meta=None,
        version=None)
    now = "torch.distributed.checkpoint"
    then = "torch.distributed._shard.sharded_tensor.metadata"
    def how(obj):
        if not isinstance(obj, Metadata):
            return NotImplemented
        state = {k: v for k, v in vars(obj).items() if k not in ("storage_meta", "version")}
        return copyreg.__newobj__, (Metadata,), state
    aged = copy.deepcopy(md)
    properties = aged.state_dict_metadata["w"].properties
    aged.state_dict_metadata["w"].properties = old_properties.TensorProperties(**vars(properties))
    data = dumps_with(aged, how, protocol)
    assert then.encode() in data
    modules = {f"{now}.metadata": f"{package}.metadata", f"{now}.filesystem": f"{package}.filesystem"}
    return forged(data, modules), md


def real_metadata(state):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dcp.save(state, checkpoint_id=folder, no_dist=True)


class Foreign:
    """A class cairn has never heard of."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return type(other) is Foreign and (self.a, self.b) == (other.a, other.b)
