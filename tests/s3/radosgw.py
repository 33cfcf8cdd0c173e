"""Ceph's gateway as a server of its own (tools/s3_server.sh), and what a process needs to talk to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bucket import Bucket
from programs import ROOT

SCRIPT = ROOT / "tools/s3_server.sh"
OTHERS = re.compile(r"(AWS_|CAIRN_S3_)|((http|https|all|no)_proxy$)", re.IGNORECASE)


def plain_environment() -> dict[str, str]:
    """This process's own, without whatever it says of other servers."""
    return {name: value for name, value in os.environ.items() if not OTHERS.match(name)}


class Radosgw:
    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        started = subprocess.run(
            [SCRIPT, "start", folder, *options], capture_output=True, text=True, timeout=300, env=plain_environment()
        )
        # Nobody skips these tests: `make test` installs the server (tools/setup.sh servers).
        assert started.returncode == 0, f"no S3 server could be started: {started.stderr}"
        self.settings = dict(re.findall(r"\b(AWS_\w+)=(\S+)", started.stdout))
        self.env = plain_environment() | self.settings | {"HOME": str(folder)}  # no profile of anybody's

    def bucket(self, name: str = "cairn-tests") -> Bucket:
        return Bucket(self.settings, name).create()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The gateway takes connections, as the kernel does that for it, and says nothing."""
        pid = int((self.folder / "run/rgw").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        subprocess.run([SCRIPT, "stop", self.folder], check=True, capture_output=True, timeout=120)
