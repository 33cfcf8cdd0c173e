"""What is shipped holds the product and nothing of its tests: no doubles, no failpoints, no planted bugs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
SHIPPED = ["libcairn.a", "cairn", "python/cairn/_engine*.so"]


def symbols(file: Path, *options: str) -> set[str]:
    listed = subprocess.run(["nm", "-C", *options, file], text=True, capture_output=True, check=True).stdout
    return {match[1] for match in re.finditer(r"^[0-9a-f]* +[a-zA-Z] (.+)$", listed, re.MULTILINE)}


def points() -> set[bytes]:
    """The names of the places where a trial can stop a save."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.cc"))
    return {name.encode() for text in texts for name in re.findall(r'CAIRN_POINT\("([a-z_.]+)"\)', text)}


@pytest.fixture(params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Path:
    (file,) = RELEASE.glob(request.param)
    return file


def test_no_double_is_in_it(shipped: Path) -> None:
    testing = {name for name in symbols(RELEASE / "libcairn_testing.a", "--defined-only") if name.startswith("cairn::")}
    own = {name for name in testing if re.search(r"Fault|Simulated", name)}
    assert len(own) > 20, "this test no longer knows what to look for"
    assert not own & symbols(shipped)


def test_no_failpoint_is_in_it(shipped: Path) -> None:
    assert len(points()) > 30, "this test no longer knows what to look for"
    contents = shipped.read_bytes()
    assert [name for name in points() if name in contents] == []


def test_the_programs_of_the_trials_have_what_is_looked_for() -> None:
    trial = next(RELEASE.rglob("kill_save")).read_bytes()
    assert [name for name in points() if name in trial] != []


def test_no_place_of_a_planted_bug_is_in_the_sources() -> None:
    marked = [path for path in (ROOT / "src").rglob("*.cc") if re.search(r"CAIRN_BUG|planted", path.read_text())]
    assert marked == []
