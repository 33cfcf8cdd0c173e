"""Building blocks for hostile files: pickle opcodes, zip records, safetensors, manifests, as plain bytes.

Everything here can build a correct file, and lets a caller bend one field of it. Standard library only.
"""

import json
import struct
import zlib

# --- pickle -------------------------------------------------------------------------------------------

MARK, STOP, POP, DUP = b"(", b".", b"0", b"2"
NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3, TUPLE = b")", b"\x85", b"\x86", b"\x87", b"t"
EMPTY_LIST, APPEND, APPENDS = b"]", b"a", b"e"
EMPTY_DICT, SETITEM, SETITEMS = b"}", b"s", b"u"
REDUCE, NEWOBJ, BUILD, MEMOIZE, STACK_GLOBAL, BINPERSID = b"R", b"\x81", b"b", b"\x94", b"\x93", b"Q"

CHECKPOINT = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


def proto(version=4):
    return b"\x80" + bytes([version])


def frame(length):
    return b"\x95" + struct.pack("<Q", length)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    if len(data) < 256:
        return b"\x8c" + bytes([len(data)]) + data
    return b"X" + struct.pack("<I", len(data)) + data


def long_text(value):
    """BINUNICODE, which protocol 2 has too."""
    data = value if isinstance(value, bytes) else value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def long1(data):
    return b"\x8a" + bytes([len(data)]) + data


def number(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    return long1(n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True))


def put(index):
    return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)


def get(index):
    return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)


def tuple_of(*items):
    short = {0: EMPTY_TUPLE, 1: TUPLE1, 2: TUPLE2, 3: TUPLE3}.get(len(items))
    return b"".join(items) + short if short else MARK + b"".join(items) + TUPLE


def list_of(*items):
    return EMPTY_LIST + (MARK + b"".join(items) + APPENDS if items else b"")


def dict_of(*pairs):
    return EMPTY_DICT + (MARK + b"".join(k + v for k, v in pairs) + SETITEMS if pairs else b"")


def name_of(module, name):
    return text(module) + text(name) + STACK_GLOBAL


def old_global(module, name):
    return f"c{module}\n{name}\n".encode()


def call(module, name, *args):
    return name_of(module, name) + tuple_of(*args) + REDUCE


def instance(module, name, state=None):
    return name_of(module, name) + EMPTY_TUPLE + NEWOBJ + (state + BUILD if state is not None else b"")


def attributes(**fields):
    return dict_of(*((text(k), v) for k, v in fields.items()))


# --- the objects of a .metadata file ------------------------------------------------------------------


def size(*dims):
    return call("torch", "Size", tuple_of(*(number(d) for d in dims)))


def dtype(name="float32"):
    return name_of("torch", name)


def layout(name="torch.strided"):
    return call("torch.serialization", "_get_layout", text(name))


def memory_format(value=0):
    return call(CHECKPOINT, "_MEM_FORMAT_ENCODING", number(value))


def properties(fields=None):
    if fields is None:
        fields = [dtype(), layout(), FALSE, memory_format(), FALSE]
    return instance(CHECKPOINT, "TensorProperties", tuple_of(*fields))


def chunk(offsets, sizes):
    return instance(CHECKPOINT, "ChunkStorageMetadata", attributes(offsets=offsets, sizes=sizes))


def tensor(shape=(4,), props=None, chunks=None, whole=None):
    if chunks is None:
        chunks = list_of(chunk(size(*[0] * len(shape)), size(*shape)))
    fields = attributes(properties=props or properties(), size=whole or size(*shape), chunks=chunks)
    return instance(CHECKPOINT, "TensorStorageMetadata", fields)


def blob():
    return instance(CHECKPOINT, "BytesStorageMetadata")


def index(fqn, offset=None, hint=NONE):
    fields = {"fqn": text(fqn), "index": hint}
    if offset is not None:
        fields["offset"] = offset
    return instance(CHECKPOINT, "MetadataIndex", attributes(**fields))


def place(path="__0_0.distcp", offset=0, length=16):
    path = path if isinstance(path, bytes) else text(path)
    raw = [v if isinstance(v, bytes) else number(v) for v in (offset, length)]
    return instance(FILESYSTEM, "_StorageInfo", attributes(relative_path=path, offset=raw[0], length=raw[1]))


def metadata(state=None, planner=None, storage=None, version=4, end=STOP, start=None, **extra):
    """A .metadata file of one tensor "w"; each part can be replaced by other opcodes."""
    fields = {
        "state_dict_metadata": state or dict_of((text("w"), tensor())),
        "planner_data": planner or dict_of((text("w"), tuple_of(text("w")))),
        "storage_data": storage or dict_of((index("w", size(0), number(0)), place())),
        **extra,
    }
    start = proto(version) if start is None else start
    return start + instance(CHECKPOINT, "Metadata", attributes(**fields)) + end


def old_metadata(version):
    """The smallest .metadata in the opcodes of protocol 2."""
    body = old_global(CHECKPOINT, "Metadata") + EMPTY_TUPLE + NEWOBJ
    fields = ((long_text("state_dict_metadata"), EMPTY_DICT), (long_text("storage_data"), EMPTY_DICT))
    return proto(version) + body + dict_of(*fields) + BUILD + STOP


# --- zip ----------------------------------------------------------------------------------------------


class Record:
    """One record as torch writes it; `local` and `central` overrides bend single header fields."""

    def __init__(self, name, data=b"", top="archive/", crc=None, method=0, stored=None, local=None,
        central=None,
                 descriptor=None, before=b"", after=b"", align=64, described=None):
        self.name = (top + name).encode() if isinstance(name, str) else name
        self.data = data
        self.stored = data if stored is None else stored
        self.crc = zlib.crc32(data) if crc is None else crc
        self.method = method
        self.local, self.central = local or {}, central or {}
        self.descriptor = descriptor
        self.before, self.after = before, after
        self.align = align
        self.described = bool(self.stored) if described is None else described

    def header(self, at):
        f = {"flags": 0x0808 if self.described else 0x0800, "method": self.method, "crc": 0, "packed": 0,
             "size": 0, "name": self.name, "version": 0}
        if not self.described:
            f.update(crc=self.crc, packed=len(self.stored), size=len(self.data))
        f.update(self.local)
        pad = -(at + 30 + len(f["name"]) + 4) % self.align
        extra = f.get("extra", b"FB" + struct.pack("<H", pad) + b"Z" * pad)
        return struct.pack("<4sHHHHHIIIHH", b"PK\3\4", f["version"], f["flags"], f["method"], 0, 0, f["crc"],
                           f["packed"], f["size"], len(f["name"]), len(extra)) + f["name"] + extra

    def tail(self):
        if self.descriptor is not None:
            return self.descriptor
        if not self.described:
            return b""
        return b"PK\7\10" + struct.pack("<III", self.crc, len(self.stored), len(self.data))

    def directory(self, at):
        f = {"flags": 0x0808 if self.described else 0x0800, "method": self.method, "crc": self.crc,
             "packed": len(self.stored), "size": len(self.data), "name": self.name, "at": at, "disk": 0,
             "extra": b"", "comment": b"", "made_by": 0, "version": 0, "external": 0}
        f.update(self.central)
        return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", f["made_by"], f["version"], f["flags"],
            f["method"], 0, 0,
                           f["crc"], f["packed"], f["size"], len(f["name"]), len(f["extra"]),
                               len(f["comment"]),
                           f["disk"], 0, f["external"], f["at"]) + f["name"] + f["extra"] + f["comment"]


def archive(records, prefix=b"", gap=b"", end=None, end64=None, locator=None, zip64=True, comment=b"",
    tail=b"",
            order=None, boundaries=None):
    """A zip file. `boundaries`, if a list, receives the offset of every structure."""
    marks = [] if boundaries is None else boundaries
    out = bytearray(prefix)
    places = []
    for record in records:
        out += record.before
        marks.append(len(out))
        places.append(len(out))
        out += record.header(len(out))
        marks.append(len(out))
        out += record.stored
        marks.append(len(out))
        out += record.tail() + record.after
    out += gap
    start = len(out)
    for i in order if order is not None else range(len(records)):
        marks.append(len(out))
        out += records[i].directory(places[i])
    length = len(out) - start
    count = len(order) if order is not None else len(records)
    f = {"disk": 0, "start_disk": 0, "here": count, "total": count, "length": length, "start": start,
        "size": 44}
    f.update(end64 or {})
    if zip64:
        marks.append(len(out))
        at = len(out)
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", f["size"], 0x031E, 0x2D, f["disk"], f["start_disk"],
            f["here"],
                           f["total"], f["length"], f["start"])
        marks.append(len(out))
        g = {"disk": 0, "at": at, "disks": 1}
        g.update(locator or {})
        out += struct.pack("<4sIQI", b"PK\6\7", g["disk"], g["at"], g["disks"])
    marks.append(len(out))
    f = {"disk": 0, "start_disk": 0, "here": count, "total": count, "length": length, "start": start}
    f.update(end or {})
    out += struct.pack("<4sHHHHIIH", b"PK\5\6", f["disk"], f["start_disk"], f["here"], f["total"],
        f["length"],
                       f["start"], len(comment)) + comment
    return bytes(out) + tail


def storage_id(kind="FloatStorage", key="0", count=4, device="cpu", module="torch"):
    return MARK + long_text("storage") + old_global(module, kind) + long_text(key) + long_text(device) + \
        number(count) + TUPLE + BINPERSID


def rebuild(storage=None, offset=0, shape=(4,), stride=(1,), hooks=None, arguments=None):
    """torch._utils._rebuild_tensor_v2(...) in protocol 2."""
    if hooks is None:
        hooks = old_global("collections", "OrderedDict") + EMPTY_TUPLE + REDUCE
    if arguments is None:
        arguments = [storage or storage_id(), number(offset), tuple_of(*(number(d) for d in shape)),
                     tuple_of(*(number(d) for d in stride)), FALSE, hooks]
    return old_global("torch._utils", "_rebuild_tensor_v2") + MARK + b"".join(arguments) + TUPLE + REDUCE


def torch_records(pickle=None, data=bytes(range(16)), version=b"3\n", byteorder=b"little"):
    """The records of torch.save(torch.tensor of four floats)."""
    pickle = proto(2) + rebuild() + STOP if pickle is None else pickle
    records = [Record("data.pkl", pickle), Record(".format_version", b"1"),
        Record(".storage_alignment", b"64")]
    if byteorder is not None:
        records.append(Record("byteorder", byteorder))
    if data is not None:
        records.append(Record("data/0", data))
    if version is not None:
        records.append(Record("version", version))
    return records + [Record(".data/serialization_id", b"0" * 40)]


def torch_file(pickle=None, **options):
    return archive(torch_records(pickle, **options))


# --- safetensors --------------------------------------------------------------------------------------


def entry(kind="F32", shape=(4,), begin=0, end=16):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


def safetensors(header, data=bytes(16), length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data
