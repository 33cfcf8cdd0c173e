"""Every hostile file gets the verdict its row asks for, quickly and in little memory.

Runs the replay programs of the sanitizer build: CAIRN_REPLAY_DIR, by default build/asan/fuzz.
"""

import collections
import os
import pathlib
import subprocess

import make_attacks
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLAY = pathlib.Path(os.environ.get("CAIRN_REPLAY_DIR", ROOT / "build/asan/fuzz"))

SEES = ("src", "include", "fuzz")  # for what runs again: tests/once.py

# What one file may cost, sanitizers included. Time is the processor's, about 100 ms for the worst of them, with
# room for a machine ten times slower: what is bounded is work (limits of opcodes and nodes, tried both sides),
# and a file that escapes those takes minutes. Memory is the peak beyond what the program needs for an empty file.
MILLISECONDS = 1000
MEMORY = 64 << 20
MEMORY_ALWAYS, MEMORY_PER_BYTE = 16 << 20, 32

CODES = {"ok", "corrupt", "unsupported", "limit"}

# kind -> (program, CAIRN_FUZZ_MODE)
PROGRAMS = {
    "pickle": ("replay_pickle", ""),
    "metadata": ("replay_metadata", ""),
    "torch": ("replay_torch_file", ""),
    "blob": ("replay_torch_file", "blob"),
    "deflate": ("replay_zip", "deflate"),
    "strict-crc": ("replay_zip", "strict-crc"),
    "safetensors": ("replay_safetensors", ""),
    "index": ("replay_safetensors_index", ""),
    "manifest": ("replay_manifest", ""),
}


def replay(program, files, mode="", limits=""):
    """{file name: (verdict, milliseconds, peak KiB, what the program said)}"""
    # A large quarantine would be counted as memory of the parser's.
    options = "quarantine_size_mb=1:malloc_context_size=0:detect_leaks=0:abort_on_error=0"
    env = {**os.environ, "CAIRN_FUZZ_MODE": mode, "CAIRN_FUZZ_LIMITS": limits, "ASAN_OPTIONS": options}
    ran = subprocess.run([REPLAY / program, "--verdict", *files], env=env, capture_output=True, text=True,
        check=False)
    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert len(rows) == len(files), ran.stderr[-2000:]
    return {name: (verdict, float(ms), int(kib), ran.stderr) for name, verdict, ms, kib in rows}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("attacks")
    return directory, make_attacks.write(directory)


@pytest.fixture(scope="session")
def outcomes(corpus):
    directory, rows = corpus
    empty = directory / "empty-baseline"
    empty.write_bytes(b"")
    runs = collections.defaultdict(list)
    for row in rows:
        runs[PROGRAMS[row.kind], row.limits].append(row)
    results = {}
    for ((program, mode), limits), group in runs.items():
        files = [empty, *(directory / row.name for row in group)]
        found = replay(program, files, mode, limits)
        baseline = found.pop(empty.name)[2]
        for name, (verdict, ms, kib, log) in found.items():
            results[name] = (verdict, ms, kib - baseline, log)
    return results


ROWS = {row.name: row for row in make_attacks.attacks()}


@pytest.mark.parametrize("name", list(ROWS))
def test_verdict(name, outcomes):
    verdict, ms, kib, log = outcomes[name]
    row = ROWS[name]
    assert row.verdict in CODES
    assert verdict == row.verdict, f"{row.reason}\n{log[-3000:] if verdict == 'crash' else ''}"
    assert ms < MILLISECONDS
    assert kib << 10 < MEMORY
    assert kib << 10 <= MEMORY_ALWAYS + MEMORY_PER_BYTE * len(row.data)


def test_the_corpus_is_large_and_two_sided(outcomes):
    kinds = collections.Counter(row.kind for row in ROWS.values())
    harmless = sum(row.verdict == "ok" for row in ROWS.values())
    print(f"\n{len(ROWS)} files, {harmless} harmless, {len(ROWS) - harmless} refused: {dict(kinds)}")
    slowest = max(outcomes, key=lambda n: outcomes[n][1])
    largest = max(outcomes, key=lambda n: outcomes[n][2])
    print(f"slowest {slowest}: {outcomes[slowest][1]:.1f} ms; largest {largest}: {outcomes[largest][2]} KiB")
    assert len(ROWS) >= 110
    for name, row in ROWS.items():
        if name.endswith("-over-limit"):
            assert ROWS[name.removesuffix("over-limit") + "at-limit"].verdict == "ok", name
            assert row.verdict == "limit", name


def test_the_corpus_is_deterministic():
    assert make_attacks.attacks() == make_attacks.attacks()


def test_a_parser_that_asks_the_system_for_anything_is_killed(corpus):
    """Every file is judged under a system call filter; this shows that it bites."""
    directory, _ = corpus
    file = directory / "pickle-plain"
    assert replay("replay_pickle", [file])[file.name][0] == "ok"
    assert replay("replay_pickle", [file], mode="escape")[file.name][0] == "crash"


def test_nothing_was_run(outcomes):
    """Several files ask an unpickler to create this one."""
    assert outcomes
    assert not pathlib.Path("/tmp/cairn-was-here").exists()
