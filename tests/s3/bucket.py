"""A plain S3 client for tests: signed requests of the standard library, none of them tried again. It sees what is
really in a bucket, and puts there what cairn did not write."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ssl
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, urlsplit


class Bucket:
    """One bucket; `env` has the AWS_ variables of its server."""

    def __init__(self, env: Mapping[str, str], name: str) -> None:
        self.env = env
        self.name = name
        self.url = urlsplit(env["AWS_ENDPOINT_URL"])

    def ask(
        self, method: str, key: str = "", query: Mapping[str, str] | None = None, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (names in lower case) and body of the answer."""
        path = quote(f"/{self.name}" + (f"/{key}" if key else ""), safe="/-._~")
        line = "&".join(f"{quote(k, safe='-._~')}={quote(v, safe='-._~')}" for k, v in sorted((query or {}).items()))
        sent = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        sent |= {"host": self.url.netloc, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        sent["x-amz-date"] = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        sent["authorization"] = self._signature(method, path, line, sent)
        connection = self._connection()
        try:
            connection.request(method, f"{path}?{line}" if line else path, body, sent)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        assert self.url.hostname
        if self.url.scheme == "http":
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=120)
        trusted = ssl.create_default_context(cafile=self.env["AWS_CA_BUNDLE"])
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=120, context=trusted)

    def _signature(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> str:
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        whole = "\n".join([method, path, query, lines, names, headers["x-amz-content-sha256"]])
        scope = f"{headers['x-amz-date'][:8]}/{self.env['AWS_REGION']}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(whole.encode()).hexdigest()])
        key = b"AWS4" + self.env["AWS_SECRET_ACCESS_KEY"].encode()
        for step in [*scope.split("/"), text]:
            key = hmac.digest(key, step.encode(), "sha256")
        who = f"{self.env['AWS_ACCESS_KEY_ID']}/{scope}"
        return f"AWS4-HMAC-SHA256 Credential={who},SignedHeaders={names},Signature={key.hex()}"

    def must(self, method: str, key: str = "", query: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
        status, _, text = self.ask(method, key, query, body)
        assert status < 300, (method, key, status, text)
        return text

    def create(self) -> Bucket:
        self.must("PUT")
        return self

    def put(self, key: str, body: bytes) -> None:
        self.must("PUT", key, body=body)

    def get(self, key: str) -> bytes:
        return self.must("GET", key)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Every key with this prefix, and how large its object is."""
        found: dict[str, int] = {}
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = _Page(self.must("GET", query=query))
            found |= {each.text("Key"): int(each.text("Size")) for each in page.all("Contents")}
            if page.text("IsTruncated") != "true":
                return found
            query["continuation-token"] = page.text("NextContinuationToken")

    def keys(self, prefix: str = "") -> set[str]:
        return set(self.sizes(prefix))

    def uploads(self, prefix: str = "") -> list[str]:
        """Keys of uploads that were begun and neither completed nor aborted."""
        page = _Page(self.must("GET", query={"uploads": "", "prefix": prefix}))
        return [each.text("Key") for each in page.all("Upload")]

    def download(self, prefix: str, folder: Path) -> Path:
        """What has this prefix, as files."""
        for key in self.keys(prefix):
            file = folder / key[len(prefix) :].lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.get(key))
        return folder

    def upload(self, folder: Path, prefix: str) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                self.put(f"{prefix}/{file.relative_to(folder)}", file.read_bytes())


class _Page:
    """An element, without the namespaces of its names."""

    def __init__(self, xml: bytes | ElementTree.Element) -> None:
        self.element = ElementTree.fromstring(xml) if isinstance(xml, bytes) else xml

    def all(self, name: str) -> list[_Page]:
        return [_Page(child) for child in self.element if child.tag.rpartition("}")[2] == name]

    def text(self, name: str) -> str:
        return next((each.element.text or "" for each in self.all(name)), "")
