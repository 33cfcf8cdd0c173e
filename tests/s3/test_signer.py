"""Signatures of random requests are those that botocore makes."""

from __future__ import annotations

import calendar
import hashlib
import json
import random
import time
from typing import Any

import pytest
from programs import TRIALS, command, seed

pytest.importorskip("botocore", reason="botocore is not installed: pip install botocore")

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SAFE = "abcXYZ019-._~"
ODD = SAFE + " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}äß日本\U0001f600\t"
REQUESTS = 3000


class Signer(S3SigV4Auth):
    """With the hash of the body that the request names."""

    def payload(self, request: AWSRequest) -> str:
        return str(request.context["payload"])


def words(draw: random.Random, letters: str, most: int) -> str:
    return "".join(draw.choices(letters, k=draw.randint(1, most)))


def drawn(draw: random.Random) -> dict[str, Any]:
    names = {words(draw, ODD, 8) for _ in range(draw.randint(0, 4))} | set(
        draw.sample(["uploads", "prefix", "x-id"], 1)
    )
    headers = {"host": draw.choice(["bucket.s3.amazonaws.com", "127.0.0.1:9000", "[::1]:80"])}
    for name in draw.sample(["range", "if-none-match", "x-amz-meta-a", "x-amz-meta-B", "x-amz-copy-source"], 2):
        headers[name] = words(draw, SAFE + '*="/', 20)
    if draw.random() < 0.3:
        headers["x-amz-meta-spaces"] = f"  {words(draw, SAFE, 5)} "
    body = words(draw, SAFE, 9)
    return {
        "method": draw.choice(["GET", "PUT", "POST", "DELETE", "HEAD"]),
        "path": "/" + words(draw, ODD, 40),
        "query": [[name, draw.choice(["", words(draw, ODD, 12)])] for name in names],
        "headers": [list(each) for each in headers.items()],
        "payload": draw.choice(["UNSIGNED-PAYLOAD", hashlib.sha256(body.encode()).hexdigest()]),
        "access_key": words(draw, "ABCDEF0123456789", 20),
        "secret_key": words(draw, SAFE + "/+", 40),
        "session_token": draw.choice(["", words(draw, SAFE + "/+=", 60)]),
        "region": draw.choice(["us-east-1", "eu-west-1", "default"]),
    }


def signed_by_botocore(asked: dict[str, Any], path: str, query: str) -> tuple[str, dict[str, str]]:
    """The time of it, and its headers."""
    host = dict(map(tuple, asked["headers"]))["host"]
    request = AWSRequest(asked["method"], f"https://{host}{path}?{query}", dict(map(tuple, asked["headers"])))
    request.context["payload"] = asked["payload"]
    keys = Credentials(asked["access_key"], asked["secret_key"], asked["session_token"] or None)
    Signer(keys, "s3", asked["region"]).add_auth(request)
    return request.context["timestamp"], {name.lower(): value for name, value in request.headers.items()}


def test_signatures_are_those_of_botocore() -> None:
    draw = random.Random(seed())
    asked = [drawn(draw) for _ in range(REQUESTS)]

    def signed(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines = "".join(json.dumps(each) + "\n" for each in requests)
        done = command(TRIALS / "sign_requests", input=lines)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    # botocore takes the time of the machine: it goes first, on the path and the query as we encode them.
    encoded = signed([each | {"time": 0} for each in asked])
    theirs = [signed_by_botocore(each, ours["path"], ours["query"]) for each, ours in zip(asked, encoded)]
    at = [calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) for stamp, _ in theirs]
    ours = signed([each | {"time": when} for each, when in zip(asked, at)])
    for each, made, (_, wanted) in zip(asked, ours, theirs):
        found = dict(map(tuple, made["headers"]))
        for name in ("authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"):
            assert parts(found.get(name)) == parts(wanted.get(name)), (name, each)


def parts(value: str | None) -> list[str]:
    """Of an authorization: with or without a space after its commas."""
    return (value or "").replace(", ", ",").split(",")
