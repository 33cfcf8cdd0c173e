"""Few descriptors, and files that may not grow beyond a size."""

from __future__ import annotations

import resource
import signal
import subprocess
from pathlib import Path

import pytest
from programs import CLI, PROBE, command, not_under_tsan, plain_build_only
from saved_specs import holds, save, spec_of

FEW = plain_build_only("it needs descriptors itself")
OLD, NEW = spec_of(1, 1, files=2), spec_of(2, 1, files=2)
DESCRIPTORS = [*range(4, 24), 26, 28, 32, 40, 48, 64]
SIZES = [0, 1, 100, 4096, 60_000, 300_000, 520_000, 540_000, 600_000, 1 << 20, 2 << 20]


def limited(which: int, value: int, *args: object, ignore: bool = False) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        # Python ignores SIGXFSZ, and its children would inherit that.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if ignore else signal.SIG_DFL)
        resource.setrlimit(which, (value, value))

    return command(*args, preexec_fn=limit)


def checked(done: subprocess.CompletedProcess[str], what: str, *reasons: str) -> bool:
    """Whether it succeeded; when not, it said why in one line."""
    assert done.returncode in (0, 1, 127), f"{what}: {done.returncode} {done.stderr}"
    if done.returncode == 1:
        # What verify cannot read stands in its report.
        assert any(reason in done.stderr + done.stdout for reason in reasons), f"{what}: {done.stderr}"
        assert "internal" not in done.stderr, f"{what}: {done.stderr}"
    return done.returncode == 0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    assert save(tmp_path / "run", OLD).returncode == 0
    return tmp_path / "run"


@FEW
def test_saves_within_few_descriptors(run: Path) -> None:
    ended = []
    for most in DESCRIPTORS:
        done = limited(resource.RLIMIT_NOFILE, most, PROBE, "save", run, NEW)
        ended.append(checked(done, f"{most} descriptors", "Too many open files"))
        assert holds(run, NEW if ended[-1] else OLD), f"{most} descriptors: {done.stderr}"
        assert save(run, OLD).returncode == 0, "the next save needs help"
    print(ended)
    assert ended[-1] and not ended[0]


@FEW
@pytest.mark.parametrize("what", ["load", "verify", "convert"])
def test_reads_within_few_descriptors(run: Path, what: str) -> None:
    to = run.parent / "made.pt"
    commands = {"load": [PROBE, "load", run, OLD], "verify": [CLI, "verify", run], "convert": [CLI, "convert", run, to]}
    ended = []
    for most in DESCRIPTORS:
        done = limited(resource.RLIMIT_NOFILE, most, *commands[what])
        ended.append(checked(done, f"{most} descriptors", "Too many open files"))
        if what == "convert":
            assert to.exists() == ended[-1], "a conversion that failed left its destination"
            to.unlink(missing_ok=True)
    print(ended)
    assert ended[-1] and not ended[0]
    assert holds(run, OLD)
    assert [file.name for file in run.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("signal_is", [
    pytest.param("default", marks=not_under_tsan("it writes a file of its own as it starts, and dies of that")),
    "ignored",
])
def test_saves_and_conversions_of_files_that_may_not_grow(run: Path, signal_is: str) -> None:
    to = run.parent / "made.pt"
    ended = []
    for most in SIZES:
        ignore = signal_is == "ignored"
        done = limited(resource.RLIMIT_FSIZE, most, PROBE, "save", run, NEW, ignore=ignore)
        ended.append(checked(done, f"{most} bytes", "File too large"))
        assert holds(run, NEW if ended[-1] else OLD), f"{most} bytes: {done.stderr}"
        assert save(run, OLD).returncode == 0, "the next save needs help"
        made = checked(limited(resource.RLIMIT_FSIZE, most, CLI, "convert", run, to, ignore=ignore), f"{most} bytes",
                       "File too large")
        assert to.exists() == made, "a conversion that failed left its destination"
        to.unlink(missing_ok=True)
    print(ended)
    assert ended[-1] and not ended[0]
