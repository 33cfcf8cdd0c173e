"""Checkpoints in buckets of a real server: Ceph's gateway, which is not told what is tried here."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cairn
import pytest
from place import HELD, Place, same, state, version_of
from radosgw import Radosgw

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as stock

import cairn.torch as cairn_dcp

warnings.simplefilter("ignore")

Start = Callable[..., Radosgw]


def place_on(server: Radosgw, folder: Path) -> Place:
    return Place(server.bucket(), server.env, "run", folder)


# One checkpoint, and every way to it.


def test_every_command_works_on_a_bucket(place: Place) -> None:
    local = place.local(3, mib=20)  # more than one part
    url = f"{place.url}/step-3"
    place.ok("convert", local, url)
    here, there = (json.loads(place.ok("ls", path, "--json")) for path in (local, url))
    assert [t["name"] for t in there["tensors"]] == [t["name"] for t in here["tensors"]]
    assert place.ok("ls", url, "model.*").count("model.") == 2
    assert json.loads(place.ok("info", url, "--json"))
    assert place.ok("show", url, "model.b") == place.ok("show", local, "model.b")
    report = json.loads(place.ok("verify", url, "--json"))
    assert report["ok"] and report["items"] > 20
    assert place.ok("gc", url, "--dry-run") == "nothing to remove\n"
    assert version_of(url, mib=20) == 3
    assert place.bucket.uploads(place.prefix) == []


@pytest.mark.parametrize("name", ["state.pt", "model.safetensors", "hf"])
def test_every_format_goes_to_a_bucket_and_comes_back(place: Place, name: str) -> None:
    to = ["--to", "huggingface"] if name == "hf" else []
    objects = [] if name == "state.pt" else ["--skip-objects"]
    there, back = f"{place.url}/{name}", place.folder / "back"
    place.ok("convert", place.local(5, mib=9), there, *to, *objects)
    place.ok("verify", there)
    place.ok("convert", there, back)
    ours, wanted = cairn.open(back), cairn.open(place.local(5, mib=9))
    names = {each["name"] for each in wanted.tensors()}
    assert {each["name"] for each in ours.tensors()} == names
    for name in names:
        assert ours[name][...].tobytes() == wanted[name][...].tobytes()


def test_a_checkpoint_goes_from_one_bucket_to_another(place: Place, radosgw: Radosgw) -> None:
    other = radosgw.bucket("cairn-others")
    place.ok("convert", place.local(4, mib=9), f"{place.url}/a")
    place.ok("convert", f"{place.url}/a", f"s3://{other.name}/{place.prefix}/b")
    assert version_of(f"s3://{other.name}/{place.prefix}/b", mib=9) == 4


def test_python_saves_loads_and_reads_parts(place: Place) -> None:
    url = f"{place.url}/step-7"
    cairn.save(state(7), url)
    assert version_of(url) == 7
    assert cairn.verify(url)["ok"]
    w = cairn.open(url)["model.w"]
    assert w[1:3, ::5].tobytes() == state(7)["model"]["w"][1:3, ::5].tobytes()
    into = state(1)
    cairn.load(into, url)
    assert same(into, state(7))
    with pytest.raises(cairn.Error, match="step-8"):
        cairn.load(None, f"{place.url}/step-8")


def torch_state(version: int) -> dict[str, Any]:
    torch.manual_seed(version)
    return {"model": {"w": torch.randn(300, 1000), "h": torch.randn(129).to(torch.bfloat16)}, "step": version}


def empty_like(made: dict[str, Any]) -> dict[str, Any]:
    return {"model": {name: torch.zeros_like(tensor) for name, tensor in made["model"].items()}, "step": 0}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    tensors = all(torch.equal(a["model"][name], b["model"][name]) for name in ("w", "h"))
    return tensors and a["step"] == b["step"]


def test_torch_users_save_and_load(place: Place) -> None:
    for version, save in enumerate((cairn_dcp.save, lambda *a, **k: cairn_dcp.async_save(*a, **k).result())):
        url = f"{place.url}/step-{version}"
        save(torch_state(version), checkpoint_id=url)
        loaded = empty_like(torch_state(version))
        cairn_dcp.load(loaded, checkpoint_id=url)
        assert cairn_dcp.last_report()["way"] == "native"
        assert equal(loaded, torch_state(version))


def _save_rank(rank: int, url: str) -> None:
    from torch_states import KINDS, make

    for kind in KINDS:
        cairn_dcp.save({kind: make(kind, True)}, checkpoint_id=f"{url}/{kind}")


def _load_rank(rank: int, url: str) -> None:
    from torch_states import KINDS, check, make

    for kind in KINDS:
        loaded: dict[str, Any] = {kind: make(kind, False)}
        cairn_dcp.load(loaded, checkpoint_id=f"{url}/{kind}")
        check(kind, loaded[kind])


def test_four_ranks_save_and_fewer_load(place: Place) -> None:
    from ranks import run_ranks

    run_ranks(4, _save_rank, place.url)
    for ranks in (1, 2, 4):
        run_ranks(ranks, _load_rank, place.url)


# Stock PyTorch on the other side.


def test_stock_pytorch_reads_the_objects_as_files(place: Place) -> None:
    cairn_dcp.save(torch_state(2), checkpoint_id=f"{place.url}/ours")
    folder = place.bucket.download(f"{place.prefix}/ours", place.folder / "copied")
    loaded = empty_like(torch_state(2))
    stock.load(loaded, checkpoint_id=folder)
    assert equal(loaded, torch_state(2))


def test_what_stock_pytorch_wrote_is_read_from_a_bucket(place: Place) -> None:
    stock.save(torch_state(3), checkpoint_id=place.folder / "stock", no_dist=True)
    place.bucket.upload(place.folder / "stock", f"{place.prefix}/stock")
    loaded = empty_like(torch_state(3))
    cairn_dcp.load(loaded, checkpoint_id=f"{place.url}/stock")
    assert equal(loaded, torch_state(3))
    cairn_dcp.save(torch_state(4), checkpoint_id=f"{place.url}/stock")  # over it
    cairn_dcp.load(loaded, checkpoint_id=f"{place.url}/stock")
    assert equal(loaded, torch_state(4))


# Overwriting, alone and against others.


def test_a_new_version_takes_the_place_of_the_old(place: Place) -> None:
    url = f"{place.url}/latest"
    for version in (1, 2, 3):
        cairn.save(state(version, mib=6), url)
        assert version_of(url, mib=6) == version
    data = [size for key, size in place.bucket.sizes(f"{place.prefix}/latest").items() if ".distcp" in key]
    assert sum(data) < 2 * (6 << 20), "data of old versions is still there"
    folder = place.bucket.download(f"{place.prefix}/latest", place.folder / "copied")
    assert version_of(folder, mib=6) == 3, "others see an old one"


def test_what_is_there_stays_when_overwriting_is_off(place: Place) -> None:
    url = f"{place.url}/once"
    place.ok("convert", place.local(1), url)
    before = place.keys()
    assert "(conflict)" in place.refused("convert", place.local(2), url)
    assert place.keys() == before and version_of(url) == 1
    place.ok("convert", place.local(2), url, "--overwrite")
    assert version_of(url) == 2


def test_one_of_twenty_writers_of_a_new_id_wins(place: Place) -> None:
    url = f"{place.url}/new"
    sources = [place.local(version) for version in range(20)]
    writers = [place.start("convert", source, url) for source in sources]
    ended = [writer.wait_for() for writer in writers]
    winners = [version for version, done in enumerate(ended) if done.returncode == 0]
    said = "".join(done.stderr for done in ended)
    assert len(winners) == 1, said
    assert said.count("(conflict)") == 19, said
    assert version_of(url) == winners[0]
    alone = f"{place.url}/alone"
    place.ok("convert", sources[0], alone)
    assert len(place.keys("new/")) == len(place.keys("alone/")), "losers have left something"
    assert place.bucket.uploads(place.prefix) == []


def test_writers_that_overwrite_one_id_at_once_never_mix(place: Place) -> None:
    url = f"{place.url}/raced"
    cairn.save(state(0, mib=2), url)
    for turn in range(8):
        versions = (2 * turn + 1, 2 * turn + 2)
        sources = [place.local(version, mib=2) for version in versions]
        writers = [place.start("convert", source, url, "--overwrite") for source in sources]
        ended = [writer.wait_for() for writer in writers]
        won = [version for version, done in zip(versions, ended) if done.returncode == 0]
        assert won, [done.stderr for done in ended]
        for done in ended:
            assert done.returncode == 0 or "(conflict)" in done.stderr, done.stderr
        assert version_of(url, mib=2) in won
        folder = place.bucket.download(f"{place.prefix}/raced", place.folder / f"copied-{turn}")
        assert version_of(folder, mib=2) in won


# Whoever dies, and what dies.


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)


def test_a_killed_writer_leaves_the_old_one_and_gc_removes_the_rest(place: Place) -> None:
    url = f"{place.url}/killed"
    place.ok("convert", place.local(1, mib=4), url)
    before = place.keys("killed/")
    source = place.local(2, mib=160)
    writer = place.start("convert", source, url, "--overwrite")
    prefix = f"{place.prefix}/killed"
    wait_until(lambda: bool(place.keys("killed/") - before or place.bucket.uploads(prefix)))
    writer.process.kill()
    assert writer.wait_for().returncode == -signal.SIGKILL, "it was done before it was killed"
    assert version_of(url, mib=4) == 1
    # It held something that says "alive" for an hour: gc may refuse, and does no harm.
    assert place.run("gc", url).returncode in (0, 1)
    assert version_of(url, mib=4) == 1
    place.ok("gc", url, "--force")
    assert place.keys("killed/") == before
    assert place.bucket.uploads(prefix) == []
    assert version_of(url, mib=4) == 1
    place.ok("verify", url)


def test_an_interrupted_writer_removes_what_it_made(place: Place) -> None:
    url = f"{place.url}/interrupted"
    writer = place.start("convert", place.local(2, mib=160), url)
    prefix = f"{place.prefix}/interrupted"
    wait_until(lambda: bool(place.keys("interrupted/") or place.bucket.uploads(prefix)))
    writer.process.send_signal(signal.SIGINT)
    assert writer.wait_for().returncode == -signal.SIGINT
    assert place.bucket.keys(prefix) == set() and place.bucket.uploads(prefix) == []


def test_a_server_that_freezes_for_a_while_holds_a_save_up(place: Place, radosgw: Radosgw) -> None:
    url = f"{place.url}/frozen"
    source = place.local(2, mib=80)
    writer = place.start("convert", source, url)
    wait_until(lambda: bool(place.keys("frozen/") or place.bucket.uploads(f"{place.prefix}/frozen")))
    with radosgw.frozen():
        time.sleep(5)
        assert writer.process.poll() is None
    assert writer.wait_for().returncode == 0
    assert version_of(url, mib=80) == 2


# Servers of other kinds.


def test_tls_with_a_private_authority(start: Start, tmp_path: Path) -> None:
    place = place_on(start("--tls"), tmp_path)
    url = f"{place.url}/secret"
    place.ok("convert", place.local(1, mib=20), url)
    place.ok("verify", url)
    place.ok("convert", url, tmp_path / "back")
    assert version_of(tmp_path / "back", mib=20) == 1
    del place.env["AWS_CA_BUNDLE"]
    said = place.refused("ls", url)
    assert "certificate" in said and "AWS_CA_BUNDLE" in said


def test_a_throttled_server_is_slow_and_no_error(start: Start, tmp_path: Path) -> None:
    place = place_on(start("--requests", "3"), tmp_path)
    sources = [place.local(version, mib=12) for version in range(4)]
    writers = [place.start("convert", source, f"{place.url}/{i}") for i, source in enumerate(sources)]
    for done in [writer.wait_for() for writer in writers]:
        assert done.returncode == 0, done.stderr
    for i in range(4):
        place.ok("convert", f"{place.url}/{i}", tmp_path / f"back-{i}")
        assert version_of(tmp_path / f"back-{i}", mib=12) == i


def test_a_full_bucket_is_said_and_the_old_checkpoint_is_whole(start: Start, tmp_path: Path) -> None:
    place = place_on(start("--size", "64"), tmp_path)
    url = f"{place.url}/full"
    place.ok("convert", place.local(1, mib=16), url)
    before = place.keys()
    began = time.monotonic()
    said = place.refused("convert", place.local(2, mib=80), url, "--overwrite")
    assert "QuotaExceeded" in said and place.bucket.name in said
    assert time.monotonic() - began < 60, "it was tried again and again"
    place.ok("verify", url)
    place.ok("convert", url, tmp_path / "back")
    assert version_of(tmp_path / "back", mib=16) == 1
    assert place.keys() == before and place.bucket.uploads() == []


def test_a_bucket_in_the_name_of_the_host(place: Place) -> None:
    endpoint = place.env["AWS_ENDPOINT_URL"].replace("127.0.0.1", "s3.localhost")
    env = {"AWS_ENDPOINT_URL": endpoint, "CAIRN_S3_PATH_STYLE": "0"}
    place.ok("convert", place.local(1), f"{place.url}/hosted", **env)
    place.ok("verify", f"{place.url}/hosted", **env)
    assert version_of(f"{place.url}/hosted") == 1  # by its path


# What is said when it does not work.


def test_errors_say_what_to_do_and_no_secret(place: Place) -> None:
    secret = "0123456789abcdefSECRET"
    cases = [
        ({"AWS_SECRET_ACCESS_KEY": secret}, place.url, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "NOBODY"}, place.url, "InvalidAccessKeyId"),
        ({}, "s3://cairn-no-such-bucket/x", "NoSuchBucket"),
        ({}, f"{place.url}/no-such-checkpoint", "(not_found)"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, place.url, "127.0.0.1:1"),
    ]
    for env, url, wanted in cases:
        said = place.refused("ls", url, **env)
        assert wanted in said and "s3://" in said
        assert secret not in said and place.env["AWS_SECRET_ACCESS_KEY"] not in said
        told = json.loads(place.run("ls", url, "--json", **env).stdout)["error"]
        assert wanted.strip("()") in json.dumps(told) and secret not in json.dumps(told)


def test_odd_names_are_keys_like_others(place: Place) -> None:
    for name in ("with space", "plus+percent%25", "ümlaut", "a=b&c", "quote'\""):
        cairn.save(state(1), f"{place.url}/{name}")
        assert version_of(f"{place.url}/{name}") == 1
    assert not any(HELD in key for key in place.bucket.keys(place.prefix)), "a save that ended still holds something"


@pytest.mark.slow
def test_many_killed_overwriters_leave_the_old_or_the_new(place: Place) -> None:
    url = f"{place.url}/killed"
    cairn.save(state(0, mib=8), url)
    last, done, killed = 0, 0, 0
    for version in range(1, int(os.environ.get("CAIRN_S3_KILLS", "40")) + 1):
        source = place.local(version % 5 + 5 * (version // 5 % 2), mib=8)
        wanted = version_of(source, mib=8)
        writer = place.start("convert", source, url, "--overwrite")
        time.sleep((version * 37 % 100) / 100 * 0.6)
        writer.process.kill()
        ended = writer.wait_for().returncode == 0
        found = version_of(url, mib=8)
        assert found in (last, wanted) and (found == wanted or not ended)
        last, done, killed = found, done + ended, killed + (not ended)
    assert killed >= 10, (done, killed)
    place.ok("gc", url, "--force")
    assert version_of(url, mib=8) == last
