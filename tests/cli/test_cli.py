"""The command `cairn`, run as people and scripts run it, on checkpoints that torch and safetensors wrote."""

import fractions
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI = pathlib.Path(os.environ.get("CAIRN_CLI", ROOT / "build/release/cairn")).absolute()
GOLDEN = ROOT / "tests/golden/torch-2.11-two-ranks"

pytestmark = pytest.mark.skipif(not CLI.exists(), reason=f"{CLI} has not been built")


def cairn(*args, **options):
    return subprocess.run([CLI, *map(str, args)], capture_output=True, text=True, timeout=60, **options)


def ok(*args):
    result = cairn(*args)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def json_of(*args):
    return json.loads(ok(*args, "--json"))


def failure(code, *args):
    """Runs a command that must fail: one line on stderr, and the same as JSON when asked."""
    result = cairn(*args)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr.startswith("cairn: ") and result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
    return result.stderr


def tensors():
    torch.manual_seed(7)
    return {
        "model.embed.weight": torch.randn(40, 30),
        "model.layers.0.w": torch.randn(8, 6, 4).to(torch.bfloat16),
        "model.layers.0.b": torch.arange(6, dtype=torch.int64),
        "model.layers.1.w": torch.randn(8, 6, 4).to(torch.float8_e4m3fn),
        "model.layers.1.b": torch.tensor([True, False, True]),
        "model.layers.10.w": torch.zeros(0, 4),
        "scale": torch.tensor(0.25, dtype=torch.float64),
    }


def nested(flat):
    state = {}
    for name, value in flat.items():
        *above, last = name.split(".")
        place = state
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return state


def save_dcp(state, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=path, no_dist=True)


KINDS = ["dcp", "torch", "safetensors", "huggingface"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same tensors in each of the four formats: format name -> path."""
    safetensors = pytest.importorskip("safetensors.torch")
    root = tmp_path_factory.mktemp("stored")
    flat = tensors()
    save_dcp(nested(flat), root / "dcp")
    torch.save(nested(flat), root / "state.pt")
    safetensors.save_file(flat, root / "model.safetensors")
    folder = root / "hf"
    folder.mkdir()
    names = list(flat)
    parts = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for file, part in parts.items():
        safetensors.save_file({n: flat[n] for n in part}, folder / file)
    index = {"metadata": {}, "weight_map": {n: file for file, part in parts.items() for n in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return {"dcp": root / "dcp", "torch": root / "state.pt", "safetensors": root / "model.safetensors", "huggingface": folder}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """One DCP checkpoint with everything that is hard to show."""
    path = tmp_path_factory.mktemp("odd") / "odd"
    with_specials = torch.randn(50)
    with_specials[3], with_specials[4], with_specials[5], with_specials[6] = math.nan, math.inf, -math.inf, 0.0
    state = {
        "specials": with_specials,
        "all_nan": torch.full((3,), math.nan),
        "big": torch.arange(5000.0).reshape(50, 100),
        "wide": torch.tensor([-(2**63), 2**63 - 1, 0]),
        "unsigned": torch.tensor([0, 2**64 - 1], dtype=torch.uint64),
        "complex": torch.tensor([3 + 4j, 0j]),
        "list[0]": torch.arange(4),
        "evil\x1b[31m\nname": torch.ones(2),
        "ünïcode": torch.ones(1),
        'quote"back\\slash': torch.ones(1),
        "text": "line\n\x1b[31mred",
        "numbers": [1, 2.5, None, True],
        "fraction": fractions.Fraction(22, 7),
    }
    save_dcp(state, path)
    return path


# ---- ls


@pytest.mark.parametrize("kind", KINDS)
def test_ls_names_every_tensor_with_its_type_and_shape(stored, kind):
    lines = ok("ls", stored[kind]).splitlines()
    assert lines[0].split() == ["name", "dtype", "shape", "bytes", "chunks", "files"]
    rows = {line.split()[0]: line for line in lines[1:-1]}
    assert rows.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert f" {str(tensor.dtype).removeprefix('torch.')} " in rows[name]
        assert f" {list(tensor.shape)} " in rows[name]
    total = sum(t.nbytes for t in tensors().values())
    assert lines[-1].startswith(f"7 tensors, 0 objects, {total / 1024:.1f} KiB in ")


@pytest.mark.parametrize("kind", KINDS)
def test_ls_json_has_exactly_the_documented_fields(stored, kind):
    listing = json_of("ls", stored[kind])
    assert list(listing) == ["format", "tensors", "objects", "total_bytes"]
    assert listing["format"] == kind
    assert listing["total_bytes"] == sum(t.nbytes for t in tensors().values())
    for row in listing["tensors"]:
        assert list(row) == ["name", "dtype", "shape", "bytes", "chunks"]
        tensor = tensors()[row["name"]]
        assert row["dtype"] == str(tensor.dtype).removeprefix("torch.")
        assert row["shape"] == list(tensor.shape)
        assert row["bytes"] == tensor.nbytes
        for chunk in row["chunks"]:
            assert list(chunk) == ["offsets", "sizes", "file", "offset", "length"]
        assert sum(math.prod(c["sizes"]) for c in row["chunks"]) == tensor.numel()
    assert {row["name"] for row in listing["tensors"]} == tensors().keys()


def test_ls_of_the_golden_checkpoint_shows_chunks_and_objects():
    text = ok("ls", GOLDEN, "--long")
    assert "[0:4, 0:8]  in __0_0.distcp at 0, 1705 bytes" in text
    listing = json_of("ls", GOLDEN)
    assert len(listing["tensors"]) == 4 and len(listing["objects"]) == 7
    w = next(t for t in listing["tensors"] if t["name"] == "model.w")
    assert [c["offsets"] for c in w["chunks"]] == [[0, 0], [4, 0]]
    assert {o["name"] for o in listing["objects"]} >= {"step", "lr", "name", "nested.none"}


def test_ls_glob_takes_dots_and_single_characters(stored):
    def names(glob):
        return [t["name"] for t in json_of("ls", stored["dcp"], glob)["tensors"]]

    assert names("model.layers.?.w") == ["model.layers.0.w", "model.layers.1.w"]
    assert set(names("model.*.w*")) == {n for n in tensors() if re.fullmatch(r"model\..*\.w.*", n)}
    assert names("scale") == ["scale"]
    assert "2 of 7 tensors" in ok("ls", stored["dcp"], "*.b")
    assert "matches 'nothing*'" in failure(1, "ls", stored["dcp"], "nothing*")


def test_ls_sorts_by_size_and_by_natural_name(stored):
    sizes = [t["bytes"] for t in json_of("ls", stored["safetensors"], "--sort", "size")["tensors"]]
    assert sizes == sorted(sizes, reverse=True)
    names = [t["name"] for t in json_of("ls", stored["safetensors"], "--sort", "name")["tensors"]]
    assert names == [
        "model.embed.weight", "model.layers.0.b", "model.layers.0.w", "model.layers.1.b", "model.layers.1.w",
        "model.layers.10.w", "scale",
    ]  # fmt: skip


def human(count):
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"


def test_ls_tree_sums_bytes_and_counts(stored):
    rows = [re.split(r"  +", line.strip()) for line in ok("ls", stored["dcp"], "--tree").splitlines()]
    flat = tensors()

    def below(prefix):
        found = [t for n, t in flat.items() if n.startswith(prefix)]
        return human(sum(t.nbytes for t in found)), f"{len(found)} tensors"

    assert ["model", *below("model.")] in rows
    assert ["layers", *below("model.layers.")] in rows
    assert ["0", *below("model.layers.0.")] in rows
    assert ["embed.weight", human(4800), "float32 [40, 30]"] in rows  # a lone child shares its parent's line
    assert len(ok("ls", stored["dcp"], "--tree", "--depth", "1").splitlines()) == 3


def test_names_cannot_reach_the_terminal(odd):
    for command in (["ls"], ["ls", "--tree"], ["ls", "--long"], ["info"]):
        text = ok(command[0], odd, *command[1:])
        assert "\x1b" not in text
    text = ok("ls", odd)
    assert r"evil\x1b[31m\nname" in text
    assert "ünïcode" in text
    assert r'quote"back\\slash' in text
    names = {t["name"] for t in json_of("ls", odd)["tensors"]}
    assert {"evil\x1b[31m\nname", "ünïcode", 'quote"back\\slash'} <= names
    assert "\x1b" not in ok("ls", odd, "--json")
    assert ok("show", odd, "evil\x1b[31m\nname").startswith(r"evil\x1b[31m\nname  float32 [2]")
    assert "\x1b" not in failure(1, "show", odd, "\x1b[31mnone")
    assert "\x1b" not in ok("show", odd, "text")


# ---- info


@pytest.mark.parametrize("kind", KINDS)
def test_info_counts_what_is_there(stored, kind):
    summary = json_of("info", stored[kind])
    flat = tensors()
    assert summary["format"] == kind
    assert summary["tensors"] == 7
    assert summary["elements"] == sum(t.numel() for t in flat.values())
    assert summary["tensor_bytes"] == sum(t.nbytes for t in flat.values())
    assert summary["largest"][0]["name"] == "model.embed.weight"
    assert {d["dtype"]: d["tensors"] for d in summary["dtypes"]}["float32"] == 2
    assert summary["odd"] == []
    assert "looks odd\n  nothing\n" in ok("info", stored[kind])


def odd_kinds(path):
    return {(o["kind"], o["subject"]) for o in json_of("info", path)["odd"]}


def test_info_notices_missing_short_and_superfluous_files(tmp_path):
    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    for file in path.iterdir():
        file.chmod(0o644)
    (path / "__0_0.distcp").unlink()
    os.truncate(path / "__1_0.distcp", 15000)
    (path / "__7_0.distcp").write_bytes(b"left over")
    assert odd_kinds(path) == {
        ("missing_file", "__0_0.distcp"),
        ("short_file", "__1_0.distcp"),
        ("unreferenced_file", "__7_0.distcp"),
    }
    text = ok("info", path)
    assert "__0_0.distcp: missing; 1705 bytes of it are needed" in text
    assert "__1_0.distcp: has 15000 bytes; 15263 are needed" in text


def test_info_notices_holes_overlaps_lost_chunks_and_foreign_planner_data(tmp_path):
    import pickle

    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    (path / ".metadata").chmod(0o644)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    del metadata.state_dict_metadata["model.w"].chunks[1]
    plain = metadata.state_dict_metadata["model.plain"]
    plain.chunks.append(plain.chunks[0])
    metadata.storage_data = {k: v for k, v in metadata.storage_data.items() if k.fqn != "model.r"}
    metadata.planner_data = {"paths": [1, 2]}
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    found = odd_kinds(path)
    assert ("bad_cover", "model.w") in found
    assert ("bad_cover", "model.plain") in found
    assert ("chunk_without_place", "model.r") in found
    assert ("foreign_planner_data", "") in found


# ---- show


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


# ---- errors


def check_json_error(code, *args):
    result = cairn(*args, "--json")
    error = json.loads(result.stdout)["error"]
    assert list(error) == ["code", "message", "file", "offset", "tensor"]
    assert error["code"] == code
    return error


@pytest.mark.parametrize("command", ["ls", "info"])
def test_what_is_no_checkpoint_is_said_in_one_line(tmp_path, command):
    assert "(not_found)" in failure(1, command, tmp_path / "nowhere")
    assert check_json_error("not_found", command, tmp_path / "nowhere")["file"].endswith("nowhere")
    text = tmp_path / "notes.txt"
    text.write_text("no checkpoint at all")
    assert "(unsupported)" in failure(1, command, text)
    empty = tmp_path / "empty"
    empty.mkdir()
    failure(1, command, empty)
    without = tmp_path / "without"
    without.mkdir()
    shutil.copy(GOLDEN / "__0_0.distcp", without)
    assert ".metadata" in failure(1, command, without)


def test_truncated_files_are_corrupt(stored, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(GOLDEN, broken)
    (broken / ".metadata").chmod(0o644)
    os.truncate(broken / ".metadata", 1000)
    assert "(corrupt)" in failure(1, "ls", broken)
    assert check_json_error("corrupt", "ls", broken)["offset"] is not None
    for kind in ("torch", "safetensors"):
        copy = tmp_path / stored[kind].name
        shutil.copy(stored[kind], copy)
        os.truncate(copy, copy.stat().st_size // 2)
        assert "(corrupt)" in failure(1, "ls", copy)


def test_a_truncated_data_file_fails_only_what_lies_there(tmp_path):
    path = tmp_path / "ckpt"
    shutil.copytree(GOLDEN, path)
    (path / "__0_0.distcp").chmod(0o644)
    os.truncate(path / "__0_0.distcp", 700)
    assert "__0_0.distcp" in failure(1, "show", path, "model.w")
    assert "15." in ok("show", path, "model.r")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_io_error(tmp_path):
    file = tmp_path / "closed.pt"
    file.write_bytes(b"PK\3\4")
    file.chmod(0)
    assert "Permission denied (io)" in failure(1, "ls", file)


def test_unknown_names_come_with_suggestions(stored):
    assert "'model.layers.0.w'" in failure(1, "show", stored["dcp"], "model.layer.0.w")
    assert "'model.embed.weight'" in failure(1, "show", stored["torch"], "embed.weight")
    assert "'step'" in failure(1, "show", GOLDEN, "stp")


@pytest.mark.parametrize("bad", ["[9999]", "[a]", "[0:1:0]", "[0, 0, 0]", "[1:2"])
def test_bad_slices_are_usage_errors(stored, bad):
    name = "model.embed.weight" + bad
    if bad.endswith("]"):
        assert "(invalid_argument)" in failure(2, "show", stored["dcp"], name)
        assert check_json_error("invalid_argument", "show", stored["dcp"], name)["tensor"] == "model.embed.weight"
    else:
        failure(1, "show", stored["dcp"], name)  # no slice: a name that does not exist


def test_objects_take_no_slice():
    assert "takes no slice" in failure(2, "show", GOLDEN, "step[0]")


@pytest.mark.parametrize(
    "args, expected",
    [
        ([], "no command"),
        (["lss"], "did you mean 'ls'"),
        (["frobnicate"], "unknown command"),
        (["ls"], "PATH"),
        (["ls", "x", "--jsno"], "'--json'"),
        (["ls", "x", "y", "z"], "'z'"),
        (["ls", "x", "--sort", "colour"], "--sort"),
        (["ls", "x", "--depth", "2"], "--tree"),
        (["ls", "x", "--tree", "--json"], "--tree"),
        (["show", "x"], "NAME"),
        (["show", "x", "y", "--precision", "many"], "--precision"),
        (["completion", "fish"], "fish"),
    ],
)
def test_wrong_usage_ends_with_2(args, expected):
    assert expected in failure(2, *args)


# ---- the shell around it


def test_a_reader_that_goes_away_ends_it_quietly(stored, tmp_path):
    torch.save({"w": torch.arange(500_000)}, tmp_path / "long.pt")
    command = f"'{CLI}' show '{tmp_path / 'long.pt'}' w --full | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == ["w  int64 [500000]", "0"]
    assert result.stderr == ""


def test_a_full_disk_is_reported():
    with open("/dev/full", "w") as full:
        result = subprocess.run([CLI, "ls", GOLDEN], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "cannot write to standard output: No space left on device (io)" in result.stderr


def on_terminal(args, **environment):
    """What the command prints when its output is a terminal of 60 columns."""
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | environment
    process = subprocess.Popen([CLI, *map(str, args)], stdout=slave, env=env)
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        out += part
    process.wait()
    os.close(master)
    return out.decode()


def test_colour_only_on_a_terminal_that_wants_it():
    assert "\x1b[1m" in on_terminal(["ls", GOLDEN])
    assert "\x1b" not in on_terminal(["ls", GOLDEN], NO_COLOR="1")
    assert "\x1b" not in on_terminal(["ls", GOLDEN], TERM="dumb")
    assert "\x1b" not in ok("ls", GOLDEN)


def test_values_wrap_at_the_width_of_the_terminal():
    lines = on_terminal(["show", GOLDEN, "model.r", "--no-stats"], NO_COLOR="1").splitlines()
    assert len(lines) == 3 and all(len(line) <= 60 for line in lines)


def test_help_has_examples_and_exit_codes():
    text = ok("--help")
    for name in ("ls", "info", "show", "verify", "gc", "completion"):
        assert name in text
        page = ok(name, "--help")
        assert f"Usage: cairn {name} " in page
        assert page.count(f"\n  cairn {name} ") + page.count(f"(cairn {name} ") >= 2
        assert "Exit codes: 0" in page
    assert "Exit codes: 0" in text


def test_version_says_what_is_in():
    version = (ROOT / "VERSION").read_text().strip()
    lines = ok("--version").splitlines()
    assert lines[0] == f"cairn {version}"
    assert {line.split()[0]: line.split()[1] for line in lines[1:]}.keys() == {"zlib", "isa-l", "xxhash", "zstd", "liburing"}


def test_the_bash_completion_completes(tmp_path):
    script = tmp_path / "cairn.bash"
    script.write_text(ok("completion", "bash"))
    subprocess.run(["bash", "-n", script], check=True)

    def complete(*words):
        quoted = " ".join(f"'{w}'" for w in ("cairn", *words))
        code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _cairn; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path).stdout.split()

    assert complete("i") == ["info"]
    assert {"--tree", "--json", "--long", "--sort"} <= set(complete("ls", "--"))
    assert complete("ls", "--sort", "s") == ["size"]
    assert complete("completion", "z") == ["zsh"]
    assert complete("ls", "cai") == ["cairn.bash"]


def test_the_zsh_completion_parses(tmp_path):
    text = ok("completion", "zsh")
    assert text.startswith("#compdef cairn\n")
    assert "'--json[" in text and "'ls:List the tensors" in text
    if shutil.which("zsh"):
        (tmp_path / "_cairn").write_text(text)
        subprocess.run(["zsh", "-n", tmp_path / "_cairn"], check=True)
