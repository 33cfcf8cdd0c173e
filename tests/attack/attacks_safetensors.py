"""Attacks on safetensors files and their index. Kinds "safetensors" and "index"."""

from assemble import *


def with_entry(raw, name='"w"'):
    return safetensors(("{" + name + ":" + raw + "}").encode())


def tensor_rows():
    good = {"w": entry()}
    plain = safetensors(good)
    header = len(plain) - 8 - 16
    yield "plain", "ok", "one tensor", plain
    yield "no-tensors", "ok", "an empty header", safetensors({}, b"")
    yield "padded", "ok", "spaces behind the header", safetensors(json.dumps(good).encode() + b"   ")
    yield "metadata", "ok", "with metadata", safetensors({"__metadata__": {"format": "pt"}, **good})
    yield "header-at-limit", "ok", "a header as long as allowed", plain, f"safetensors_header_bytes={header}"
    yield "header-over-limit", "limit", "a header one byte longer than allowed", plain, \
        f"safetensors_header_bytes={header - 1}"
    yield "header-100-mb-and-one", "corrupt", "100,000,001 bytes of header, and no bytes", \
        safetensors(b"{}", b"", 100_000_001)
    yield "header-2-to-63", "corrupt", "2^63 bytes of header", safetensors(b"{}", b"", 2**63)
    yield "header-max", "corrupt", "2^64-1 bytes of header", safetensors(b"{}", b"", 2**64 - 1)
    yield "header-past-file", "corrupt", "a header one byte longer than the file", \
        safetensors(good, b"", header + 1)
    yield "header-zero", "corrupt", "a header of no bytes", safetensors(b"", b"", 0)
    yield "too-short", "corrupt", "seven bytes", b"\2\0\0\0\0\0\0"
    yield "empty", "corrupt", "no bytes", b""
    yield "not-json", "corrupt", "a header that is no JSON", safetensors(b"hello, world")
    yield "json-tail", "corrupt", "two values in the header", \
        safetensors(b'{"w":' + json.dumps(entry()).encode() + b"}{}")
    yield "bom", "corrupt", "a byte order mark", safetensors(b"\xef\xbb\xbf" + json.dumps(good).encode())
    yield "leading-space", "corrupt", "the header must start with a brace", \
        safetensors(b" " + json.dumps(good).encode())
    yield "array", "corrupt", "a list at the top", safetensors(b"[]", b"")
    yield "comment", "corrupt", "a comment in the JSON", \
        safetensors(b'{/**/"w":' + json.dumps(entry()).encode() + b"}")
    yield "trailing-comma", "corrupt", "a trailing comma", \
        safetensors(b'{"w":' + json.dumps(entry()).encode() + b",}")
    yield "nan", "corrupt", "NaN in the header", \
        with_entry('{"dtype":"F32","shape":[NaN],"data_offsets":[0,16]}')
    yield "bad-utf8", "corrupt", "a name that is not UTF-8", \
        safetensors(b'{"\xff":' + json.dumps(entry()).encode() + b"}")
    yield "lone-surrogate", "corrupt", "half a character", with_entry(json.dumps(entry()), '"\\ud800"')
    yield "nul-tail", "corrupt", "NUL behind the header", safetensors(json.dumps(good).encode() + b"\0")
    yield "depth", "corrupt", "lists 100,000 deep", \
        safetensors(b'{"w":' + b"[" * 100000 + b"]" * 100000 + b"}")
    yield "nested-shape", "corrupt", "a list inside the shape", \
        with_entry('{"dtype":"F32","shape":[[4]],"data_offsets":[0,16]}')

    yield "duplicate-name", "corrupt", "one tensor twice", \
        safetensors(b'{"w":' + json.dumps(entry()).encode() + b',"w":' + json.dumps(entry()).encode() + b"}")
    yield "duplicate-field", "corrupt", "one field twice", \
        with_entry('{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}')
    yield "duplicate-metadata", "corrupt", "metadata twice", \
        safetensors(b'{"__metadata__":{},"__metadata__":{}}', b"")
    yield "duplicate-metadata-key", "corrupt", "one metadata key twice", \
        safetensors(b'{"__metadata__":{"a":"1","a":"2"}}', b"")
    yield "metadata-number", "corrupt", "metadata that is no string", \
        safetensors({"__metadata__": {"a": 1}}, b"")
    yield "metadata-null", "corrupt", "metadata that is null", safetensors({"__metadata__": {"a": None}}, b"")
    yield "metadata-nested", "corrupt", "metadata with a dict inside", \
        safetensors({"__metadata__": {"a": {}}}, b"")
    yield "metadata-list", "corrupt", "metadata that is a list", safetensors({"__metadata__": []}, b"")

    for field in ("dtype", "shape", "data_offsets"):
        yield f"no-{field}", "corrupt", f"a tensor without {field}", \
            safetensors({"w": {k: v for k, v in entry().items() if k != field}})
    yield "extra-field", "corrupt", "a field nobody knows", safetensors({"w": {**entry(), "strides": [1]}})
    yield "dtype-unknown", "unsupported", "a dtype nobody knows", safetensors({"w": entry("F99")})
    yield "dtype-lower", "unsupported", "a dtype in small letters", safetensors({"w": entry("f32")})
    yield "dtype-number", "corrupt", "a dtype that is a number", safetensors({"w": {**entry(), "dtype": 7}})
    for name, dims in {"float": "4.0", "exponent": "4e0", "negative": "-4", "string": '"4"', "true": "true",
        "minus-zero": "-0", "plus": "+4",
                       "leading-zero": "04"}.items():
        yield f"shape-{name}", "corrupt", f"a dimension {dims}", \
            with_entry('{"dtype":"F32","shape":[' + dims + '],"data_offsets":[0,16]}')
    for name, dim, verdict in (("2-to-53", 2**53, "ok"), ("past-2-to-53", 2**53 + 1, "limit"),
        ("past-2-to-64", 2**64, "limit"),
                               ("past-everything", 10**400, "limit")):
        yield f"shape-{name}", verdict, f"a dimension of that size, times 0", \
            safetensors({"w": entry(shape=[0, dim], end=0)}, b"")
    yield "volume-overflow", "corrupt", "a product past 2^64", \
        safetensors({"w": entry(shape=[2**40, 2**40])})
    yield "volume-wraps", "corrupt", "a product that is 4 in 64 bits", \
        safetensors({"w": entry(shape=[2**32, 2**32, 4])})
    yield "volume-wraps-bytes", "corrupt", "bytes that are 16 in 64 bits", \
        safetensors({"w": entry("F64", shape=[2**52, 2**9 + 1])})
    yield "rank-at-limit", "ok", "64 dimensions", safetensors({"w": entry(shape=[1] * 63 + [4])})
    yield "rank-over-limit", "limit", "65 dimensions", safetensors({"w": entry(shape=[1] * 64 + [4])})
    yield "size-mismatch", "corrupt", "four floats in 12 bytes", safetensors({"w": entry(end=12)}, bytes(12))
    yield "offsets-reversed", "corrupt", "an end before the start", safetensors({"w": entry(begin=16, end=0)})
    yield "offsets-three", "corrupt", "three offsets", \
        safetensors({"w": {**entry(), "data_offsets": [0, 8, 16]}})
    yield "offsets-one", "corrupt", "one offset", safetensors({"w": {**entry(), "data_offsets": [0]}})
    yield "offsets-float", "corrupt", "an offset of 0.0", \
        with_entry('{"dtype":"F32","shape":[4],"data_offsets":[0.0,16]}')
    yield "offsets-negative", "corrupt", "an offset of -16", \
        with_entry('{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}')
    yield "offsets-huge", "limit", "offsets near 2^64", \
        safetensors({"w": entry(begin=2**64 - 17, end=2**64 - 1)})
    yield "past-file", "corrupt", "more data than there is", safetensors(good, bytes(12))
    yield "trailing-data", "corrupt", "bytes behind the last tensor", safetensors(good, bytes(17))
    yield "hole-first", "corrupt", "four bytes before the first tensor", \
        safetensors({"w": entry(begin=4, end=20)}, bytes(20))
    yield "hole-between", "corrupt", "a hole between tensors", \
        safetensors({"a": entry(), "b": entry(begin=20, end=36)}, bytes(36))
    yield "overlap", "corrupt", "tensors that overlap", \
        safetensors({"a": entry(), "b": entry(begin=12, end=28)}, bytes(28))
    yield "same-place", "corrupt", "two tensors at one place", safetensors({"a": entry(), "b": entry()})
    yield "backwards", "ok", "data in another order than the header", \
        safetensors({"a": entry(begin=16, end=32), "b": entry()}, bytes(32))
    yield "scalar", "ok", "no dimensions", safetensors({"w": entry(shape=[], end=4)}, bytes(4))
    yield "empty-tensors", "ok", "tensors without elements", \
        safetensors({"a": entry(shape=[0], end=0), "b": entry(shape=[2, 0], end=0)}, b"")
    yield "name-at-limit", "ok", "a name of 64 KiB", safetensors({"n" * 65536: entry()})
    yield "name-over-limit", "limit", "a name of 64 KiB and one byte", \
        safetensors({"n" * 65537: entry()})
    yield "name-empty", "ok", "the empty name", safetensors({"": entry()})
    three = {n: entry(shape=[0], end=0) for n in "abc"}
    yield "tensors-at-limit", "ok", "as many tensors as allowed", safetensors(three, b""), \
        "safetensors_tensors=3"
    yield "tensors-over-limit", "limit", "one tensor more than allowed", safetensors(three, b""), \
        "safetensors_tensors=2"
    yield "f4-odd-rows", "unsupported", "rows of three half bytes, in whole bytes together", \
        safetensors({"w": entry("F4", shape=[2, 3], end=3)}, bytes(3))
    yield "f4-odd", "corrupt", "half a byte", \
        safetensors({"w": entry("F4", shape=[3], end=1)}, bytes(1))


def index_rows():
    def dump(**fields):
        return json.dumps({"metadata": {"total_size": 16}, "weight_map": {"w": "model.safetensors"},
            **fields}).encode()

    def nested(depth):
        """JSON `depth` deep in all, inside the metadata."""
        return dump(metadata={"total_size": 16, "x": json.loads("[" * (depth - 2) + "]" * (depth - 2))})

    good = dump()
    yield "plain", "ok", "one tensor", good
    yield "empty-map", "ok", "no tensors", dump(weight_map={})
    yield "no-metadata", "ok", "metadata is optional", json.dumps({"weight_map": {"w": "a"}}).encode()
    yield "no-map", "corrupt", "no weight_map", json.dumps({"metadata": {}}).encode()
    yield "map-list", "corrupt", "a weight_map that is a list", dump(weight_map=[])
    yield "file-number", "corrupt", "a file that is a number", dump(weight_map={"w": 7})
    yield "duplicate", "corrupt", "one tensor twice", b'{"metadata":{},"weight_map":{"w":"a","w":"b"}}'
    yield "duplicate-map", "corrupt", "two maps", b'{"weight_map":{"w":"a"},"weight_map":{"w":"b"}}'
    yield "duplicate-in-metadata", "corrupt", "one metadata key twice", \
        b'{"metadata":{"total_size":1,"total_size":2},"weight_map":{}}'
    for name, path in {"parent": "../x", "absolute": "/etc/passwd", "nul": "a\0b", "empty": "",
        "empty-part": "a//b", "dot": "./a", "part-over-limit": "a" * 256}.items():
        yield f"path-{name}", "limit" if "limit" in name else "corrupt", f"a file named {path[:20]!r}", dump(weight_map={"w": path})
    yield "path-part-at-limit", "ok", "a file name of 255 bytes", dump(weight_map={"w": "a" * 255})
    yield "total-negative", "corrupt", "a total of -1", dump(metadata={"total_size": -1})
    yield "total-overflow", "limit", "a total past 2^64", dump(metadata={"total_size": 2**64})
    yield "total-string", "corrupt", "a total that is a string", dump(metadata={"total_size": "16"})
    yield "depth-at-limit", "ok", "16 deep", nested(16)
    yield "depth-over-limit", "limit", "17 deep", nested(17)
    yield "depth-100k", "limit", "100,000 deep", \
        b'{"metadata":' + b"[" * 100000 + b"]" * 100000 + b',"weight_map":{}}'
    yield "bytes-at-limit", "ok", "as large as allowed", good, f"json_bytes={len(good)}"
    yield "bytes-over-limit", "limit", "one byte larger than allowed", good, f"json_bytes={len(good) - 1}"
    yield "not-json", "corrupt", "text", b"hello"
    yield "empty", "corrupt", "no bytes", b""
    yield "tail", "corrupt", "two values", good + b"{}"
    yield "bom", "corrupt", "a byte order mark", b"\xef\xbb\xbf" + good
    yield "bad-utf8", "corrupt", "not UTF-8", b'{"weight_map":{"\xff":"a"}}'


def cases():
    for name, verdict, reason, data, *limits in tensor_rows():
        yield f"safetensors-{name}", "safetensors", verdict, reason, data, *limits
    for name, verdict, reason, data, *limits in index_rows():
        yield f"index-{name}", "index", verdict, reason, data, *limits
