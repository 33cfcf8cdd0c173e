"""One real S3 server for all tests of a file, others for those that want them otherwise, and a place in a bucket."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from place import IS_BUILT, Place
from radosgw import OTHERS, Radosgw

sys.path.insert(0, str(Path(__file__).parent.parent / "torch"))  # ranks.py, torch_states.py

collect_ignore_glob = [] if IS_BUILT else ["test_[!b]*.py"]  # test_built.py says so

Start = Callable[..., Radosgw]


@pytest.fixture(scope="session")
def radosgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Radosgw]:
    server = Radosgw(tmp_path_factory.mktemp("radosgw"))
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a server with options of its own: start("--tls")."""
    servers: list[Radosgw] = []

    def started(*options: str) -> Radosgw:
        servers.append(Radosgw(tmp_path_factory.mktemp("radosgw"), *options))
        return servers[-1]

    yield started
    for server in servers:
        server.stop()


@pytest.fixture
def place(radosgw: Radosgw, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A prefix of its own for each test, which this very process reaches as well."""
    for name in list(os.environ):
        if OTHERS.match(name):
            monkeypatch.delenv(name)
    for name, value in radosgw.settings.items():
        monkeypatch.setenv(name, value)
    prefix = re.sub(r"[^\w.-]", "-", request.node.name)
    return Place(radosgw.bucket(), radosgw.env, prefix, tmp_path)
