#!/usr/bin/env python3
"""Save and load at an S3 server, against bare libcurl, raw sockets and what else saves checkpoints to buckets.

All in one run, against a server on loopback that keeps bytes in memory (bench/s3) and is a process of its own: what is
counted as CPU is the client's alone. Checksums on, requests signed. Every figure is the best of three, each to the place
of the one before. curl and the sockets move as many bytes over as many connections as cairn had at most.

The others are measured where they are installed: `make bench-peers` does that, in build/peers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
PROGRAMS = Path(os.environ.get("CAIRN_BENCH_BIN", RELEASE / "bench"))
SERVER = Path(os.environ.get("CAIRN_S3_SERVER", RELEASE / "tests" / "s3_server"))
COMMAND = Path(os.environ.get("CAIRN_CLI", RELEASE / "cairn"))
PEERS = ROOT / "build" / "peers" / "bin" / "python"
BYTES = int(os.environ.get("CAIRN_BENCH_BYTES", 1 << 30))
CORES = os.cpu_count() or 1
THREADS = int(os.environ.get("CAIRN_BENCH_THREADS", str(min(16, max(8, CORES)))))  # of the others
MANY_CORES = 12  # from here on the server is not what limits everybody
LATENCY = 20  # milliseconds, of each request
SMALL = 20_000
LISTED = 100_000

# argv: who, url, bytes, threads, device. Prints what s3_client does.
PEER = """
import json, os, resource, sys, time, warnings
import torch
warnings.simplefilter("ignore")
who, url, size, threads, device = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
state = {"model": {f"w{i}": torch.rand((32 << 20) // 4, device=device) for i in range(max(1, size >> 25))}}
if who == "cairn":
    import cairn.torch as dcp
    def save(path): dcp.save(state, checkpoint_id=path)
    def load(path): dcp.load(state, checkpoint_id=path)
else:
    import torch.distributed.checkpoint as dcp
    if who == "s3torchconnector":
        from s3torchconnector import S3ClientConfig
        from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
        from s3torchconnector._s3client import S3Client
        config = S3ClientConfig(force_path_style=True, throughput_target_gbps=100)
        def at_endpoint(storage):
            storage.fs._client = S3Client("us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)
            return storage
        def writer(path):
            return at_endpoint(S3StorageWriter("us-east-1", path, s3client_config=config, thread_count=threads))
        def reader(path): return at_endpoint(S3StorageReader("us-east-1", path, s3client_config=config))
    else:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader as reader, FsspecWriter
        def writer(path): return FsspecWriter(path, thread_count=threads)
    def save(path): dcp.save(state, storage_writer=writer(path), no_dist=True)
    def load(path): dcp.load(state, storage_reader=reader(path), no_dist=True)
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
def best(work):
    found = []
    for _ in range(3):
        before, start = cpu(), time.perf_counter()
        work(url)
        if device != "cpu": torch.cuda.synchronize()
        found.append((time.perf_counter() - start, cpu() - before))
    return {"seconds": min(each[0] for each in found), "cpu": min(each[1] for each in found)}
saving = best(save)
wanted = {name: tensor.clone() for name, tensor in state["model"].items()}
for tensor in state["model"].values(): tensor.zero_()
loading = best(load)
assert all(torch.equal(tensor, state["model"][name]) for name, tensor in wanted.items()), "another state was loaded"
print(json.dumps({"save": saving, "load": loading}))
"""

Costs = dict[str, dict[str, float]]  # "save" and "load": seconds, cpu; "connections": most


class Server:
    """The loopback server as a process; gone at the end of the block."""

    def __init__(self, *options: str) -> None:
        self.command = [str(SERVER), "--bucket", "bench", "--no-md5", *options]

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.endpoint, _, self.bundle = self.process.stdout.readline().strip().partition(" ")
        return self

    def __exit__(self, *_: object) -> None:
        said, _ = self.process.communicate()
        self.at_once = int(dict(line.split() for line in said.splitlines()).get("at-once", 0))

    def env(self) -> dict[str, str]:
        of_others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        ours = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "no_proxy": "127.0.0.1",
        }
        return {**of_others, **ours, **({"AWS_CA_BUNDLE": self.bundle} if self.bundle else {})}


def ask(server: Server | None, *command: Any) -> Any:
    """What a program prints, as JSON: its last line."""
    env = server.env() if server else None
    done = subprocess.run([str(each) for each in command], env=env, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def cairn(*options: str, size: int = BYTES) -> Costs:
    with Server(*options) as server:
        costs = ask(server, PROGRAMS / "s3_client", "move", "s3://bench/run", size)
    return {**costs, "connections": {"most": server.at_once}}


def raw(kind: str, beside: Costs, *options: str) -> Costs:
    connections = int(beside["connections"]["most"])
    with Server(*options) as server:
        verbs = {"save": "put", "load": "get", **({"drop": "drop"} if kind == "curl" else {})}
        return {
            what: ask(server, PROGRAMS / "s3_raw", kind, verb, server.endpoint, BYTES, connections)
            for what, verb in verbs.items()
        }


def in_python(python: Path, who: str, device: str = "cpu") -> Costs:
    with Server("--completed-etag") as server:
        return ask(server, python, "-c", PEER, who, "s3://bench/run", BYTES, THREADS, device)


def row(name: str, cairn: float, unit: str, **others: Any) -> None:
    print(json.dumps({"name": f"s3.{name}", "cairn": cairn, "unit": unit, **others}), flush=True)


def rate(cost: dict[str, float], size: int = BYTES) -> float:
    return size / 1e9 / cost["seconds"]


def cpu(cost: dict[str, float]) -> float:
    return cost["cpu"] / (BYTES / 1e9)


def has(python: Path, *modules: str) -> bool:
    command = [str(python), "-c", "import " + ", ".join(modules)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def against_machine(ours: Costs) -> None:
    sockets, curl = raw("sockets", ours), raw("curl", ours)
    over = f"over {ours['connections']['most']} connections"
    for what in ("save", "load"):
        mine, limit = rate(ours[what]), rate(sockets[what])
        target = {"target": 0.8} if CORES >= MANY_CORES else {}
        row(what, mine, "GB/s", limit=limit, ratio=mine / limit, note=f"of raw sockets, {over}", **target)
        row(f"{what}_curl", mine, "GB/s", limit=rate(curl[what]), ratio=mine / rate(curl[what]), note="of bare curl")
    for what, most in (("save", 1.2), ("load", 1.4)):
        mine, limit = cpu(ours[what]), cpu(curl[what])
        row(f"cpu.{what}", mine, "s/GB", limit=limit, ratio=mine / limit, target=most, better="lower",
            note="times bare curl's")  # fmt: skip
        row(f"cpu.{what}_sockets", mine, "s/GB", limit=cpu(sockets[what]), ratio=mine / cpu(sockets[what]))
    mine, limit = cpu(ours["load"]), cpu(curl["drop"])
    row("cpu.load_drop", mine, "s/GB", limit=limit, ratio=mine / limit, note="times curl's that throws all away")


def tls() -> None:
    ours = cairn("--tls")
    curl = raw("curl", ours, "--tls")
    for what in ("save", "load"):
        mine, limit = cpu(ours[what]), cpu(curl[what])
        row(f"tls.cpu.{what}", mine, "s/GB", limit=limit, ratio=mine / limit, target=1.2, better="lower",
            note="times bare curl's")  # fmt: skip
        row(f"tls.{what}", rate(ours[what]), "GB/s", limit=rate(curl[what]), ratio=rate(ours[what]) / rate(curl[what]),
            note="of bare curl")  # fmt: skip


def latency() -> None:
    """Of a state that takes seconds: what is asked before and after the data is the same for all sizes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = min(16 * BYTES, memory // 8)  # the server keeps four of them
    plain, slow = cairn(size=size), cairn("--latency", str(LATENCY), size=size)
    for what in ("save", "load"):
        mine, without = rate(slow[what], size), rate(plain[what], size)
        row(f"latency.{what}", mine, "GB/s", limit=without, ratio=mine / without, target=0.8,
            note=f"of that without {LATENCY} ms more for each request; {size / 1e9:.0f} GB")  # fmt: skip


def others(ours: Costs) -> None:
    pythons = [python for python in (PEERS, Path(sys.executable)) if python.exists() and has(python, "torch")]
    for who, save, load in (("s3torchconnector", 2.5, 4), ("s3fs", None, None)):
        python = next((each for each in pythons if has(each, who)), None)
        if python is None:
            print(f"s3: without {who}, which is not installed: make bench-peers (or pip install {who})")
            continue
        try:
            theirs = in_python(python, who)
        except subprocess.CalledProcessError:
            print(f"s3: without {who}, which failed")
            continue
        for what, target in (("save", save), ("load", load)):
            mine, stock = rate(ours[what]), rate(theirs[what])
            row(f"{who}.{what}", mine, "GB/s", stock=stock, ratio=mine / stock, target=target, note=f"times {who}'s")
            row(f"{who}.cpu.{what}", cpu(ours[what]), "s/GB", stock=cpu(theirs[what]),
                ratio=cpu(theirs[what]) / cpu(ours[what]), note=f"less than {who}'s")  # fmt: skip


def gpu() -> None:
    python = Path(sys.executable)
    if not has(python, "torch", "cairn.torch"):
        return
    cards = subprocess.run([python, "-c", "import torch; print(torch.cuda.is_available())"], capture_output=True)
    if cards.stdout.strip() != b"True":
        return
    plain, device = in_python(python, "cairn"), in_python(python, "cairn", "cuda")
    for what in ("save", "load"):
        mine, limit = rate(device[what]), rate(plain[what])
        row(f"gpu.{what}", mine, "GB/s", limit=limit, ratio=mine / limit, target=0.85, note="of tensors of the CPU's")


def requests() -> None:
    small = ask(None, PROGRAMS / "s3_client", "small", SMALL)
    objects = small["objects"]
    for what in ("save", "save_again", "load"):
        row(f"requests.{what}", small[what]["requests"] - objects, "requests", target=60,
            note=f"beyond {objects} for as many objects; {SMALL} tensors: {small[what]['kinds']}")  # fmt: skip
    listing = ask(None, PROGRAMS / "s3_client", "ls", LISTED, COMMAND)
    row("requests.ls", listing["requests"], "requests", target=4, note=f"{LISTED} tensors: {listing['kinds']}")


def main() -> int:
    only = os.environ.get("CAIRN_BENCH_ONLY", "")

    def wanted(*names: str) -> bool:
        return any(f"s3.{name}".startswith(only) or only.startswith(f"s3.{name}") for name in names)

    if not wanted(""):
        return 0
    if not (SERVER.exists() and (PROGRAMS / "s3_client").exists()):
        print("s3: cairn was built without S3")
        return 0
    with_ours = ("save", "load", "cpu", "memory", "s3torchconnector", "s3fs")
    ours = cairn() if wanted(*with_ours) else {}
    if wanted("save", "load", "cpu"):
        against_machine(ours)
    if wanted("memory"):
        for what in ("save", "load"):
            row(f"memory.{what}", ours[what]["mib"], "MiB", target=320, note="beyond the state; budget 256 MiB")
    if wanted("tls"):
        tls()
    if wanted("latency"):
        latency()
    if wanted("s3torchconnector", "s3fs"):
        others(ours)
    if wanted("gpu"):
        gpu()
    if wanted("requests"):
        requests()
    return 0


if __name__ == "__main__":
    sys.exit(main())
