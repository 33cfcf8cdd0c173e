"""`cairn show`: values, slices, statistics, objects."""

import random
import re

import pytest
from command import KINDS, built, json_of, ok, tensors, torch
from programs import GOLDEN
from saved import cairn

pytestmark = built


def values(path, name, *options):
    return json_of("show", path, name, "--full", *options)


def as_python(tensor):
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    return tensor.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_show_gives_the_values_torch_saved(stored, kind):
    for name, tensor in tensors().items():
        shown = values(stored[kind], name)
        assert shown["dtype"] == str(tensor.dtype).removeprefix("torch.")
        assert shown["shape"] == list(tensor.shape) == shown["selected_shape"]
        assert shown["values"] == (as_python(tensor) if tensor.numel() else [])


def random_slice(size, rng):
    start, stop = rng.randint(-size - 1, size + 1), rng.randint(-size - 1, size + 1)
    return rng.choice([slice(None), slice(start, stop), slice(start, None, rng.randint(1, 4)), slice(None, stop)])


def text_of(s):
    text = lambda v: "" if v is None else str(v)
    return f"{text(s.start)}:{text(s.stop)}" + (f":{s.step}" if s.step else "")


@pytest.mark.parametrize("kind", KINDS)
def test_show_slices_as_torch_does(stored, kind):
    seed = 11
    rng = random.Random(seed)
    tensor = tensors()["model.layers.0.w"].to(torch.float64)
    for _ in range(15):
        cut = [random_slice(size, rng) for size in tensor.shape[: rng.randint(1, 3)]]
        text = f"model.layers.0.w[{', '.join(map(text_of, cut))}]"
        expected = tensor[tuple(cut)]
        shown = values(stored[kind], text)
        assert shown["selected_shape"] == list(expected.shape), (seed, text)
        assert shown["values"] == (expected.tolist() if expected.numel() else []), (seed, text)
    assert values(stored[kind], "model.layers.0.w[-1]")["values"] == tensor[-1:].tolist()


@pytest.mark.parametrize("name", ["model.embed.weight", "model.layers.0.w", "model.layers.1.w", "model.layers.0.b"])
def test_show_statistics_are_those_of_torch(stored, name):
    tensor = tensors()[name].to(torch.float64)
    shown = json_of("show", stored["dcp"], name)
    s = shown["statistics"]
    assert (s["count"], s["min"], s["max"]) == (tensor.numel(), tensor.min().item(), tensor.max().item())
    assert s["mean"] == pytest.approx(tensor.mean().item(), rel=1e-12, abs=1e-15)
    assert s["std"] == pytest.approx(tensor.std().item(), rel=1e-12)
    assert s["zeros"] == (tensor == 0).sum()
    edges, counts = shown["histogram"]["edges"], shown["histogram"]["counts"]
    last = len(counts) - 1
    for i, count in enumerate(counts):
        inside = (tensor >= edges[i]) & ((tensor <= edges[i + 1]) if i == last else (tensor < edges[i + 1]))
        assert count == inside.sum()
    assert sum(counts) == tensor.numel()


def test_show_counts_nan_and_inf_and_leaves_them_out(odd):
    shown = values(odd, "specials")
    s = shown["statistics"]
    assert (s["count"], s["nan"], s["inf"], s["zeros"]) == (50, 1, 2, 1)
    assert -10 < s["min"] < s["max"] < 10
    assert shown["values"][3:6] == ["nan", "inf", "-inf"]
    assert sum(shown["histogram"]["counts"]) == 47
    nothing = json_of("show", odd, "all_nan")
    assert nothing["statistics"]["min"] is None and nothing["histogram"] is None
    assert "nan 3" in ok("show", odd, "all_nan")


def test_show_keeps_all_digits_of_integers_and_takes_complex_by_magnitude(odd):
    assert values(odd, "wide")["values"] == [-(2**63), 2**63 - 1, 0]
    assert values(odd, "wide")["statistics"]["min"] == -(2**63)
    assert values(odd, "unsigned")["statistics"]["max"] == 2**64 - 1
    shown = values(odd, "complex")
    assert shown["values"] == [[3.0, 4.0], [0.0, 0.0]]
    assert (shown["statistics"]["max"], shown["statistics"]["zeros"]) == (5.0, 1)


def test_show_cuts_large_tensors_in_the_middle(odd):
    text = ok("show", odd, "big", "--no-stats")
    assert text.splitlines()[1] == "[[   0.,    1.,    2., ...,   97.,   98.,   99.],"
    assert text.splitlines()[4] == " ...,"
    assert text.splitlines()[-1].endswith("4999.]]")
    full = ok("show", odd, "big", "--no-stats", "--full")
    assert [float(n) for n in re.findall(r"\d+\.", full.split("\n", 1)[1])] == [float(i) for i in range(5000)]
    assert json_of("show", odd, "big")["values"] is None


def test_show_precision(stored):
    weight = tensors()["model.embed.weight"]
    text = ok("show", stored["torch"], "model.embed.weight[0, 0]", "--precision", "8")
    assert re.search(r"\d\.\d{8}(e[-+]\d+)?\]\]", text)
    assert f"{weight[0, 0].item():.8f}" in text or f"{weight[0, 0].item():.8e}" in text


def test_show_takes_a_name_with_brackets_before_a_slice(odd):
    assert values(odd, "list[0]")["values"] == [0, 1, 2, 3]
    assert values(odd, "list[0][1:3]")["values"] == [1, 2]


def test_show_prints_plain_objects():
    assert ok("show", GOLDEN, "step").endswith("\n7\n")
    assert ok("show", GOLDEN, "name").endswith("\n'hello'\n")
    assert ok("show", GOLDEN, "nested.tuple").endswith("\n(1, 'b')\n")
    assert json_of("show", GOLDEN, "lr")["value"] == 0.5
    assert json_of("show", GOLDEN, "nested.none") == {
        "name": "nested.none", "kind": "object", "bytes": 1261, "type": "None", "value": None,
    }  # fmt: skip


def test_show_disassembles_what_it_does_not_know(odd):
    text = ok("show", odd, "fraction")
    assert "never run" in text
    assert "fractions.Fraction" in text
    assert "GLOBAL" in text
    assert "STOP" in json_of("show", odd, "fraction")["disassembly"]


def test_show_works_in_bounded_memory(tmp_path):
    import resource

    torch.save({"w": torch.zeros(80_000_000)}, tmp_path / "large.pt")  # 320 MB
    limit = 220 << 20

    def limit_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    result = cairn("show", tmp_path / "large.pt", "w", preexec_fn=limit_memory)
    assert result.returncode == 0, result.stderr
    assert "count 80000000  zero 80000000" in result.stdout
