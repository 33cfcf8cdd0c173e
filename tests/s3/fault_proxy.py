"""A proxy on loopback between cairn and an S3 server that loses, repeats, delays and refuses, as a seed says.

    with FaultProxy("http://127.0.0.1:8000", seed=7) as proxy:
        ...  # AWS_ENDPOINT_URL=proxy.url
    proxy.counts  # {"lost": 2, ...}

What it forwards it leaves as it is, the Host header too: signatures hold.
"""

from __future__ import annotations

import random
import socket
import socketserver
import threading
import time
from collections import Counter
from types import TracebackType
from typing import BinaryIO
from urllib.parse import urlsplit

# dropped, refused and full: nothing was done. lost and done: it was, and the client does not hear of it.
KINDS = ("dropped", "refused", "lost", "done", "delayed", "truncated", "slow", "wrong_range", "twice", "full")
STATUSES = (500, 502, 503, 504, 408, 429)


class Broken(Exception):
    """A connection ends in the middle of something."""


class Message:
    """A request or an answer: its first line, its headers as they came, and its body."""

    def __init__(self, stream: BinaryIO, to: socket.socket | None = None, bodiless: bool = False) -> None:
        self.first = stream.readline(65536)
        self.lines: list[bytes] = []
        while (line := stream.readline(65536)) not in (b"\r\n", b"\n", b""):
            self.lines.append(line)
        if not self.first:
            raise Broken
        if to is not None and self.header("expect"):
            self.remove("expect")
            to.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.body = b"" if bodiless else self._body(stream)

    def _body(self, stream: BinaryIO) -> bytes:
        if self.header("transfer-encoding").lower() == "chunked":
            body = b""
            while size := int(stream.readline(1024).split(b";")[0], 16):
                body += stream.read(size)
                stream.readline(8)
            stream.readline(8)
            self.remove("transfer-encoding")
            self.lines.append(b"Content-Length: %d\r\n" % len(body))
            return body
        size = int(self.header("content-length") or 0)
        body = stream.read(size)
        if len(body) < size:
            raise Broken
        return body

    def header(self, name: str) -> str:
        for line in self.lines:
            key, _, value = line.decode("latin-1").partition(":")
            if key.lower() == name:
                return value.strip()
        return ""

    def remove(self, name: str) -> None:
        self.lines = [line for line in self.lines if line.decode("latin-1").partition(":")[0].lower() != name]

    @property
    def method(self) -> str:
        return self.first.split()[0].decode()

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    def head(self) -> bytes:
        return self.first + b"".join(self.lines) + b"\r\n"


def refusal(status: int, code: str, bodiless: bool) -> bytes:
    body = f"<Error><Code>{code}</Code><RequestId>proxy</RequestId></Error>".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (b"" if bodiless else body)


class Client(socketserver.BaseRequestHandler):
    """One connection of a client's, and one to the server for it."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        proxy = self.server.proxy
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with socket.create_connection(proxy.upstream, 60) as upstream, upstream.makefile("rb") as answers:
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self.request.makefile("rb") as requests:
                    while self._serve(Message(requests, self.request), upstream, answers):
                        pass
        except (Broken, OSError, ValueError):
            pass  # either side has gone

    def _serve(self, asked: Message, upstream: socket.socket, answers: BinaryIO) -> bool:
        """Whether the connection goes on."""
        kind, chance = self.server.proxy.choose(asked)
        bodiless = asked.method == "HEAD"
        if kind == "dropped":
            return False
        if kind in ("refused", "full"):
            status, code = (403, "QuotaExceeded") if kind == "full" else (STATUSES[int(chance * 6)], "SlowDown")
            self.request.sendall(refusal(status, code, bodiless))
            return True
        if kind == "delayed":
            time.sleep(chance)
        for _ in range(2 if kind == "twice" else 1):
            upstream.sendall(asked.head() + asked.body)
            answer = Message(answers, bodiless=bodiless)
            while answer.status == 100:
                answer = Message(answers, bodiless=bodiless)
        if kind == "lost":
            return False
        if kind == "done":
            self.request.sendall(refusal(STATUSES[int(chance * 6)], "InternalError", bodiless))
            return True
        if kind == "wrong_range" and answer.header("content-range"):
            answer.remove("content-range")
            answer.lines.append(b"Content-Range: bytes 1-%d/%d\r\n" % (len(answer.body), len(answer.body) + 7))
        self._send(answer, kind, chance)
        return kind != "truncated" and answer.header("connection").lower() != "close"

    def _send(self, answer: Message, kind: str, chance: float) -> None:
        body = answer.body[: int(len(answer.body) * chance)] if kind == "truncated" else answer.body
        self.request.sendall(answer.head())
        step = max(len(body) // 10, 1) if kind == "slow" else max(len(body), 1)
        for at in range(0, len(body), step):
            if kind == "slow":
                time.sleep(chance / 10)
            self.request.sendall(body[at : at + step])


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: FaultProxy


class FaultProxy:
    """Each seed has a few kinds of faults, how often they are, and how many of them at most."""

    def __init__(self, upstream: str, seed: int) -> None:
        url = urlsplit(upstream)
        assert url.scheme == "http" and url.hostname and url.port
        self.upstream = (url.hostname, url.port)
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._kinds = self._random.sample(KINDS[:-1], self._random.randint(1, 5))
        self._part = self._random.choice([0.02, 0.05, 0.1, 0.3])
        self._budget = self._random.choice([3, 10, 30])
        self._calm = self._random.randint(0, 20)  # requests until a storm of refusals
        self._storm = self._random.choice([0, 0, 3, 12])  # how many it refuses
        # A bucket that is full from some request on: nobody tries that again.
        self._full = self._random.randint(5, 30) if self._random.random() < 0.15 else None
        self._seen = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), Client)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def choose(self, asked: Message) -> tuple[str, float]:
        """What goes wrong with a request, and a number from 0 to 1 for how much."""
        with self._lock:
            self._seen += 1
            chance, kind = self._random.random(), self._random.choice(self._kinds)
            if self._full is not None and self._seen >= self._full and asked.method == "PUT" and asked.body:
                kind = "full"
            elif self._seen > self._calm and self._storm > 0:
                self._storm -= 1
                kind = "refused"
            elif self._budget == 0 or self._random.random() >= self._part:
                return "", chance
            else:
                self._budget -= 1
            self.counts[kind] += 1
            return kind, chance

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
