"""torch.save -> cairn reads and writes it again -> torch.load gives the same, bit for bit."""

import collections
import datetime
import os
import pickletools
import random
import subprocess
import zipfile

import numpy as np
import pytest
from programs import PROBE

torch = pytest.importorskip("torch")

SEED = 20250311
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


def random_tensor(rng, dtype, *shape):
    """Any bit pattern, NaNs included."""
    n = int(np.prod(shape))
    raw = bytearray(rng.randbytes(n * dtype.itemsize) or b"\0" * 16)
    if dtype == torch.bool:
        raw = bytearray(b & 1 for b in raw)
    return torch.frombuffer(raw, dtype=torch.uint8)[: n * dtype.itemsize].clone().view(dtype).view(shape)


def dtype_cases(rng):
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        yield name, [random_tensor(rng, dtype, *shape) for shape in [(5,), (), (0,), (0, 3), (2, 3), (2, 1, 3, 2)]]


def layout_cases(rng):
    def t(*shape):
        return random_tensor(rng, torch.float32, *shape)

    base = t(6, 8)
    yield "transposed", t(3, 5).t()
    yield "permuted", t(2, 3, 4, 5).permute(3, 0, 2, 1)
    yield "channels_last", t(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "expanded", t(1, 3).expand(1000, 3)
    yield "whole and views", [base, base[2], base.t(), base[:, 3:5], base[1:1]]
    yield "view first", [base[3:], base]
    yield "pieces of a flat buffer", list(torch.split(t(100), [10, 50, 40]))
    yield "interleaved columns", [base[:, 0], base[:, 4]]
    yield "the same tensor twice", {"a": base, "b": base}
    yield "two big ones", [t(600, 700), t(1 << 20)]
    yield "one type seen as another", [(x := random_tensor(rng, torch.uint16, 8)), x.view(torch.float8_e5m2)]


def container_cases(rng):
    def t(*shape):
        return random_tensor(rng, torch.float32, *shape)

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    yield "model", model.state_dict()
    yield "optimizer", optimizer.state_dict()
    yield "ordered dict", collections.OrderedDict(b=1, a=t(2))
    yield "nested", {"a": [1, (2, [3, {"b": t(2)}], ()), [], {}], 7: {-1: None}, "": ""}
    yield "scalars", [None, True, False, 0.1, -0.0, 1e308, float("inf"), "it's é \U0001f600", "x" * 300, b"", b"a\0\xff" * 99]
    ints = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**59, 2**62, 2**63 - 1, 2**63, 2**64, 2**900]
    yield "integers", [s * i for i in ints for s in (1, -1)] + [-(2**63) - 1]
    yield "many", {f"layer.{i}.weight": t(3) for i in range(2500)}
    yield "long list", list(range(3000))
    yield "size", [torch.Size([2, 3]), torch.Size([])]
    yield "just a tensor", t(2, 2)
    yield "just a number", 5


def all_cases():
    rng = random.Random(SEED)
    return {name: value for make in (dtype_cases, layout_cases, container_cases) for name, value in make(rng)}


def raw(t):
    t = t.detach().resolve_conj().contiguous()
    return bytes(t.reshape(-1).view(torch.uint8).numpy()) if t.numel() else b""


def same(a, b, where):
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor), where
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()), where
        assert raw(a) == raw(b), where
    elif isinstance(a, dict):
        assert isinstance(b, dict) and list(a) == list(b), where
        for k in a:
            same(a[k], b[k], f"{where}[{k!r}]")
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, list if isinstance(a, list) else tuple) and len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    else:
        assert type(a) is type(b) and (a == b or a != a) and repr(a) == repr(b), where


def tensors_in(v):
    if isinstance(v, torch.Tensor):
        yield v
    elif isinstance(v, (dict, list, tuple)):
        for x in v.values() if isinstance(v, dict) else v:
            yield from tensors_in(x)


def sharing(v):
    """For each tensor with elements: which storage, in order of first use, and where in it."""
    numbers = {}
    out = []
    for t in tensors_in(v):
        if t.numel():
            number = numbers.setdefault(t.untyped_storage().data_ptr(), len(numbers))
            out.append((number, t.storage_offset() * t.dtype.itemsize))
    return out


def probe(*args):
    return subprocess.run([PROBE, "rewrite-torch", *map(str, args)], capture_output=True, text=True)


def rewrite(folder, cases, save=torch.save):
    """Saves every case, rewrites all in one run; gives name -> (original file, rewritten file)."""
    files = {name: (folder / f"in{i}.pt", folder / f"out{i}.pt") for i, name in enumerate(cases)}
    for name, (original, _) in files.items():
        save(cases[name], original)
    done = probe(*[p for pair in files.values() for p in pair])
    assert done.returncode == 0, done.stderr
    return files


pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:.torch.jit")


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    cases = all_cases()
    return cases, rewrite(tmp_path_factory.mktemp("torch_file"), cases)


def pickle_in(path):
    with zipfile.ZipFile(path) as z:
        return z.read(next(n for n in z.namelist() if n.endswith("/data.pkl")))


def test_values_come_back_bit_for_bit(rewritten):
    cases, files = rewritten
    for name, (_, out) in files.items():
        loaded = torch.load(out, weights_only=True)
        expected = cases[name]
        if name == "size":
            expected = [tuple(s) for s in expected]
        same(expected, loaded, name)
        assert sharing(expected) == sharing(loaded), name


def test_files_are_clean_to_other_readers(rewritten):
    _, files = rewritten
    for name, (_, out) in files.items():
        with zipfile.ZipFile(out) as z:
            assert z.testzip() is None, name
        subprocess.run(["unzip", "-tqq", out], check=True)
        pickletools.dis(pickle_in(out), out=open(os.devnull, "w"))


def test_records_are_the_ones_torch_writes(rewritten):
    _, files = rewritten
    for name in ["float32", "uint16", "model", "just a number"]:
        listings = []
        for path in files[name]:
            with zipfile.ZipFile(path) as z:
                listings.append([n.split("/", 1)[1] for n in z.namelist()])
        assert listings[0] == listings[1], name


def program(path):
    """The opcodes without the memo's bookkeeping."""
    return [(op.name, arg) for op, arg, _ in pickletools.genops(pickle_in(path)) if "PUT" not in op.name]


def test_pickle_of_a_plain_tensor_is_torchs(tmp_path):
    rng = random.Random(SEED)
    shapes = [(), (3,), (2, 3), (2, 3, 2), (1, 2, 1, 2, 1)]
    cases = {f"{d} {s}": random_tensor(rng, d, *s) for d in DTYPES for s in shapes}
    for name, (original, out) in rewrite(tmp_path, cases).items():
        assert program(original) == program(out), name


def test_parameters_come_back_as_tensors(tmp_path):
    plain = torch.nn.Parameter(torch.randn(3))
    marked = torch.nn.Parameter(torch.randn(2), requires_grad=False)
    marked.note = "kept by torch, not by cairn"
    _, out = rewrite(tmp_path, {"p": [plain, marked]})["p"]
    loaded = torch.load(out, weights_only=True)
    same([plain.detach(), marked.detach()], loaded, "parameters")


def test_objects_of_other_classes_are_kept(tmp_path):
    objects = {
        "numpy": np.float64(2.5),
        "counter": collections.Counter("aab"),
        "set": {1, 2},
        "complex": 1 + 2j,
        "bytearray": bytearray(b"xy"),
        "date": datetime.date(2024, 2, 29),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "tuple key": {(1, 2): 3},
        "float key": {0.5: [1]},
        "tensor": torch.arange(3),
    }
    _, out = rewrite(tmp_path, {"o": objects})["o"]
    loaded = torch.load(out, weights_only=False)
    assert list(loaded) == list(objects)
    for k, v in objects.items():
        assert type(loaded[k]) is type(v), k
        assert torch.equal(loaded[k], v) if k == "tensor" else loaded[k] == v, k


def test_other_writers_settings_are_read(tmp_path):
    x = {"a": torch.randn(5), "b": torch.randn(70, 70)}

    def no_crc(value, path):
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(value, path)
        finally:
            torch.serialization.set_crc32_options(True)

    def aligned(value, path):
        with torch.utils.serialization.config.patch("save.storage_alignment", 4096):
            torch.save(value, path)

    def protocol_4(value, path):
        torch.save(value, path, pickle_protocol=4)

    for save in (no_crc, aligned, protocol_4):
        _, out = rewrite(tmp_path, {"x": x}, save)["x"]
        same(x, torch.load(out, weights_only=True), save.__name__)


def test_what_cannot_be_kept_is_refused_with_the_reason(tmp_path):
    def legacy(path):
        torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False)

    def script(path):
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path)

    def sparse(path):
        torch.save(torch.eye(3).to_sparse(), path)

    def conjugated(path):
        torch.save(torch.ones(2, dtype=torch.complex64).conj(), path)

    def compressed(path):
        torch.save(torch.randn(1000), path)
        with zipfile.ZipFile(path) as z:
            records = [(n, z.read(n)) for n in z.namelist()]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            for name, content in records:
                z.writestr(name, content)

    reasons = {
        legacy: "before torch 1.6",
        script: "TorchScript",
        compressed: "is compressed",
        sparse: "torch._utils._rebuild_sparse_tensor",
        conjugated: "torch._utils._rebuild_tensor_v2",
    }
    for save, reason in reasons.items():
        save(tmp_path / "in.pt")
        done = probe(tmp_path / "in.pt", tmp_path / "out.pt")
        assert done.returncode == 1, save
        assert reason in done.stderr and "(unsupported)" in done.stderr, done.stderr
        assert not (tmp_path / "out.pt").exists()
