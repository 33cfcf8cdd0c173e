"""cairn reads, byte for byte, what real torch and safetensors write."""

import itertools
import json
import random
import subprocess
import warnings

import pytest
from programs import GOLDEN, PROBE

torch = pytest.importorskip("torch")
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason=f"{PROBE} has not been built")

DTYPES = [
    name
    for name in """bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex32
    complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2""".split()
    if hasattr(torch, name)
]
SAFETENSORS_DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()


def bytes_of(tensor):
    """The elements' bytes in row-major order."""
    if tensor.numel() == 0:
        return b""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_bytes(shape, dtype, seed):
    """A tensor whose bytes are random, whatever they mean (bools are 0 or 1)."""
    size = torch.empty([], dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    data = torch.randint(0, high, (count * size,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def dump(path, name, selection=None):
    """(dtype, shape, bytes) as cairn reads them."""
    command = [str(PROBE), "dump", str(path), name] + ([selection] if selection is not None else [])
    done = subprocess.run(command, capture_output=True, timeout=1200)
    assert done.returncode == 0, done.stderr.decode()
    head, _, data = done.stdout.partition(b"\n")
    dtype, _, shape = head.decode().partition(" ")
    return dtype, json.loads(shape), data


def check(path, name, tensor, selection=None, index=...):
    expected = tensor[index]
    dtype, shape, data = dump(path, name, selection)
    assert dtype == str(tensor.dtype).removeprefix("torch.")
    assert shape == list(expected.shape)
    assert data == bytes_of(expected), f"{name} {selection}"


def random_index(shape, rng):
    """A selection as text, and the same as slices (an index keeps its dimension, as in cairn)."""
    texts, slices = [], []
    for n in shape[: rng.randint(0, len(shape))]:
        if n > 0 and rng.random() < 0.3:
            at = rng.randrange(-n, n)
            texts.append(str(at))
            slices.append(slice(at % n, at % n + 1))
        else:
            start, stop = (rng.choice([None, rng.randint(-n - 2, n + 2)]) for _ in range(2))
            step = rng.choice([None, 1, 2, 3])
            text = ":".join("" if part is None else str(part) for part in (start, stop))
            texts.append(text if step is None else f"{text}:{step}")
            slices.append(slice(start, stop, step))
    return ("[" + ", ".join(texts) + "]" if texts else ""), tuple(slices) or ...


def check_selections(path, name, tensor, seed, count=8):
    rng = random.Random(seed)
    for _ in range(count):
        text, index = random_index(tensor.shape, rng)
        check(path, name, tensor, text, index)


def quiet_save(state, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path, no_dist=True, **options)


def all_dtypes():
    return {f"t.{name}": random_bytes((5, 7), getattr(torch, name), i) for i, name in enumerate(DTYPES)}


def shapes():
    base = random_bytes((6, 8, 10), torch.float32, 99)
    return {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "one": torch.tensor([7]),
        "cube": base,
        "transposed": base.permute(2, 0, 1),
        "sliced": base[1:5, ::2, 3:],
        "parameter": torch.nn.Parameter(torch.randn(3, 4)),
        "large": random_bytes((1500, 2000), torch.float32, 5),
    }


def test_dcp_of_every_dtype(tmp_path):
    state = all_dtypes()
    quiet_save(state, tmp_path)
    for name, tensor in state.items():
        check(tmp_path, name, tensor)
        check(tmp_path, name, tensor, "[1::2, 2:5]", (slice(1, None, 2), slice(2, 5)))


def test_dcp_of_many_shapes(tmp_path):
    state = shapes()
    quiet_save(state, tmp_path)
    for seed, (name, tensor) in enumerate(state.items()):
        check(tmp_path, name, tensor)
        check_selections(tmp_path, name, tensor.detach(), seed)


def test_torch_save_of_every_dtype(tmp_path):
    state = all_dtypes()
    torch.save(state, tmp_path / "model.pt")
    for name, tensor in state.items():
        check(tmp_path / "model.pt", name, tensor)


def test_torch_save_of_many_shapes(tmp_path):
    state = shapes()
    state["expanded"] = torch.tensor([[1.0], [2.0]]).expand(2, 5)
    torch.save({"deep": [state]}, tmp_path / "model.pt")
    for seed, (name, tensor) in enumerate(state.items()):
        check(tmp_path / "model.pt", f"deep.0.{name}", tensor)
        check_selections(tmp_path / "model.pt", f"deep.0.{name}", tensor.detach(), seed)


def test_torch_save_of_a_bare_tensor(tmp_path):
    torch.save(torch.arange(5), tmp_path / "t.pt")
    check(tmp_path / "t.pt", "(root)", torch.arange(5))


def test_safetensors_file(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    state = {f"t.{name}": random_bytes((5, 7), getattr(torch, name), i) for i, name in enumerate(SAFETENSORS_DTYPES)}
    state |= {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "cube": random_bytes((6, 8, 10), torch.float32, 9)}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for path, (seed, (name, tensor)) in itertools.product(
        (tmp_path / "model.safetensors", tmp_path), enumerate(state.items())
    ):
        check(path, name, tensor)
        check_selections(path, name, tensor, seed, count=2)


def test_hugging_face_directory(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    state = {f"layers.{i}.w": random_bytes((4, 6), torch.bfloat16, i) for i in range(4)}
    weight_map = {}
    for number, names in enumerate((list(state)[:2], list(state)[2:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: state[name] for name in names}, tmp_path / file)
        weight_map |= {name: file for name in names}
    index = {"metadata": {"total_size": 192}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    for seed, (name, tensor) in enumerate(state.items()):
        check(tmp_path, name, tensor)
        check_selections(tmp_path, name, tensor, seed, count=2)


def test_zstd_items(tmp_path):
    extension = pytest.importorskip("torch.distributed.checkpoint._extension")
    pytest.importorskip("zstandard")
    tensor = random_bytes((100, 30), torch.float32, 1)
    writer = dcp.FileSystemWriter(tmp_path, _extensions=[extension.ZStandard()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"w": tensor}, storage_writer=writer, no_dist=True)
    check(tmp_path, "w", tensor)


WORLD = 2


def global_tensors():
    return {
        "rows": torch.arange(9 * 4, dtype=torch.float32).reshape(9, 4),
        "columns": torch.arange(6 * 7, dtype=torch.int64).reshape(6, 7),
        "copied": torch.arange(12, dtype=torch.bfloat16),
    }


def rank_main(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    places = {"rows": Shard(0), "columns": Shard(1), "copied": Replicate()}
    state = {name: distribute_tensor(t, mesh, [places[name]]) for name, t in global_tensors().items()}
    state["plain"] = torch.ones(3)
    dcp.save(state, checkpoint_id=f"{folder}/collective")
    dcp.save(state, checkpoint_id=f"{folder}/rank-local", use_collectives=False)
    writer = dcp.HuggingFaceStorageWriter(f"{folder}/huggingface", save_distributed=True)
    dcp.save(state, storage_writer=writer)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two-ranks")
    mp.start_processes(rank_main, args=(str(folder),), nprocs=WORLD, start_method="fork")  # imports torch once
    return folder


@pytest.mark.parametrize("how", ["collective", "rank-local", "huggingface"])
def test_two_ranks(two_ranks, how):
    for seed, (name, tensor) in enumerate(global_tensors().items()):
        check(two_ranks / how, name, tensor)
        check_selections(two_ranks / how, name, tensor, seed)
    check(two_ranks / how, "plain", torch.ones(3))


def test_golden_checkpoint():
    check(GOLDEN, "model.w", torch.arange(64, dtype=torch.float32).reshape(8, 8))
    check(GOLDEN, "model.r", torch.arange(16, dtype=torch.bfloat16))
    check(GOLDEN, "model.plain", torch.ones(3, dtype=torch.int64))
    check(GOLDEN, "nested.list.2.a", torch.zeros(2))
    check_selections(GOLDEN, "model.w", torch.arange(64, dtype=torch.float32).reshape(8, 8), 1)


def test_an_unknown_name_offers_near_ones():
    done = subprocess.run([str(PROBE), "dump", str(GOLDEN), "model.W"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "did you mean 'model.w'" in done.stderr
