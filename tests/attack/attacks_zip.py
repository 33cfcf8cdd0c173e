"""Attacks on archives: directory lies, names, records; and on what torch.save files mean. Kinds "torch", "blob", "zip"."""

from assemble import *


def swap(records, name, **fields):
    """The same records, one of them with other headers."""
    out = []
    for record in records:
        if record.name.decode().endswith("/" + name):
            record = Record(record.name, fields.pop("data", record.data), **fields)
        out.append(record)
    return out


def zip_rows():
    records = torch_records()
    good = archive(records)
    count = len(records)
    yield "plain", "ok", "as torch writes it", good
    yield "no-zip64", "ok", "without the zip64 end records", archive(records, zip64=False)
    yield "sizes-in-local-headers", "ok", "no data descriptors", \
        archive([Record(r.name, r.data, described=False) for r in records])
    yield "zero-crc", "ok", "CRC not computed", archive([Record(r.name, r.data, crc=0) for r in records])
    yield "wrong-crc-pickle", "corrupt", "data.pkl does not match its CRC", archive(swap(records, "data.pkl", crc=1))
    yield "wrong-crc-data", "corrupt", "data/0 does not match its CRC", archive(swap(records, "data/0", crc=1))
    yield "flipped-data", "corrupt", "one bit of data/0 changed", good.replace(bytes(range(16)), b"\1" + bytes(range(1, 16)))

    yield "prefix", "corrupt", "bytes before the first header", archive(records, prefix=b"#!/bin/sh\n")
    yield "prefix-offsets-kept", "corrupt", "bytes before an unchanged archive", b"MZ" + good
    yield "tail", "corrupt", "a byte behind the end record", archive(records, tail=b"\0")
    yield "comment", "corrupt", "a comment", archive(records, comment=b"hello")
    yield "comment-hides-archive", "corrupt", "a second archive inside the comment", archive(records, comment=good)
    yield "two-archives", "corrupt", "two archives one after another", good + good
    yield "second-end-record", "corrupt", "two end records", good + good[-22:]
    yield "gap-before-directory", "corrupt", "bytes between data and directory", archive(records, gap=b"hidden")
    yield "gap-between-records", "corrupt", "bytes between two records", archive(swap(records, "byteorder", after=b"hidden"))
    yield "hidden-record", "corrupt", "a record the directory does not name", archive(records, order=[i for i in range(count) if i != 1])
    yield "directory-order", "corrupt", "a directory in another order than the records", \
        archive(records, order=[*range(1, count), 0])
    yield "overlap", "corrupt", "two entries, one place", \
        archive(swap(records, "byteorder", central={"at": 0}))
    yield "entry-past-end", "corrupt", "a header offset beyond the file", archive(swap(records, "byteorder", central={"at": 1 << 30}))
    yield "duplicate-name", "corrupt", "two records of one name", archive(records + [Record("data.pkl", b"\x80\2N.")])
    yield "duplicate-by-case", "ok", "names differ by case only", archive(records + [Record("DATA.PKL", b"x")])

    for name, raw in (("parent", b"archive/../evil"), ("parent-top", b"../evil"), ("absolute", b"/evil"), ("backslash", b"archive\\evil"),
                      ("nul", b"archive/a\0b"), ("empty", b""), ("no-folder", b"evil"), ("other-folder", b"other/evil"),
                      ("folder-prefix", b"archive2/evil"), ("drive", b"C:/evil"), ("folder-only", b"archive/"),
                      ("empty-part", b"archive//evil"), ("dot-part", b"archive/./evil"), ("bad-utf8", b"archive/\xff")):
        yield f"name-{name}", "corrupt", f"a record named {raw!r}", archive(records + [Record(raw, b"x")])
    limit = 512 - len("archive/")
    yield "name-at-limit", "ok", "a name of 512 bytes", archive(records + [Record("n" * limit, b"x")])
    yield "name-over-limit", "limit", "a name of 513 bytes", archive(records + [Record("n" * (limit + 1), b"x")])

    for name, fields in {
        "name": {"name": b"archive/data/1"}, "method": {"method": 8}, "crc": {"crc": 7}, "size": {"size": 15},
        "packed": {"packed": 15}, "flags": {"flags": 0x0800},
    }.items():
        yield f"local-{name}-differs", "corrupt", f"local and central {name} differ", archive(swap(records, "data/0", local=fields))
    yield "local-size-smaller", "corrupt", "sizes without a descriptor that differ", \
        archive(swap(records, "data/0", described=False, local={"size": 15, "packed": 15}))
    good_tail = struct.pack("<III", zlib.crc32(bytes(range(16))), 16, 16)
    yield "descriptor-wrong-size", "corrupt", "a descriptor with another size", archive(
        swap(records, "data/0", descriptor=b"PK\7\10" + good_tail[:4] + struct.pack("<II", 17, 17)))
    yield "descriptor-wrong-crc", "corrupt", "a descriptor with another CRC", archive(swap(records, "data/0", descriptor=b"PK\7\10" + b"\1" * 4 + good_tail[4:]))
    yield "descriptor-missing", "corrupt", "no descriptor where flag 3 promises one", archive(swap(records, "data/0", descriptor=b""))
    yield "descriptor-unexpected", "corrupt", "a descriptor without flag 3", archive(swap(records, "data/0", described=False, descriptor=b"PK\7\10" + good_tail))
    yield "descriptor-bad-signature", "corrupt", "a descriptor with another signature", archive(swap(records, "data/0", descriptor=b"PK\7\7" + good_tail))
    both = {"local": {"flags": 0x0809}, "central": {"flags": 0x0809}}
    yield "encrypted", "unsupported", "the encryption flag", archive(swap(records, "data/0", **both))
    packed = zlib.compress(bytes(1000), 9)[2:-4]
    deflated = [*records, Record("extra", bytes(1000), stored=packed, method=8)]
    yield "deflate", "unsupported", "a compressed record", archive(deflated)
    yield "version-6-3", "ok", "a record for version 6.3 of the format", \
        archive([*records, Record("extra", b"x", central={"version": 63})])
    yield "version-6-4", "unsupported", "a record for version 6.4, which Python does not read", \
        archive([*records, Record("extra", b"x", central={"version": 64})])
    yield "method-99", "unsupported", "an unknown method", archive([*records, Record("extra", b"x", method=99)])
    yield "stored-size-lie", "corrupt", "stored, but the sizes differ", archive(swap(records, "data/0", central={"size": 17}))

    for name, fields in {"disk": {"disk": 1}, "start-disk": {"start_disk": 1}, "count-here": {"here": count - 1}, "count-more": {"here": count + 1, "total": count + 1},
                         "count-less": {"here": count - 1, "total": count - 1}, "count-huge": {"here": 65534, "total": 65534},
                         "length": {"length": 1}, "length-huge": {"length": 0x7FFFFFFF}, "start": {"start": 0}, "start-huge": {"start": 0x7FFFFFFF}}.items():
        # Another disk, or only some of the entries on this one: an archive in parts.
        verdict = "unsupported" if name in ("disk", "start-disk", "count-here") else "corrupt"
        yield f"end-{name}", verdict, f"the end record lies: {fields}", archive(records, end=fields)
        yield f"end-{name}-plain", verdict, f"the end record lies, no zip64: {fields}", archive(records, end=fields, zip64=False)
        yield f"end64-{name}", verdict, f"the zip64 end record lies: {fields}", archive(records, end64=fields)
    yield "end64-count-2-to-63", "corrupt", "2^63 entries", archive(records, end64={"here": 2**63, "total": 2**63}, end={"here": 0xFFFF, "total": 0xFFFF})
    yield "end64-offset-overflow", "corrupt", "start + length past 2^64", \
        archive(records, end64={"start": 2**64 - 1, "length": 2**64 - 1}, end={"start": 0xFFFFFFFF, "length": 0xFFFFFFFF})
    yield "end64-size", "corrupt", "a zip64 end record of another length", archive(records, end64={"size": 45})
    yield "locator-offset", "corrupt", "the locator points elsewhere", archive(records, locator={"at": 0})
    yield "locator-offset-huge", "corrupt", "the locator points far beyond", archive(records, locator={"at": 2**64 - 8})
    yield "locator-disks", "unsupported", "two disks", archive(records, locator={"disks": 2})
    yield "directory-disk", "unsupported", "a record on disk 1", archive(swap(records, "data/0", central={"disk": 1}))
    yield "zip64-size-lie", "corrupt", "a zip64 field with 2^63 bytes", archive(
        swap(records, "data/0", central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": struct.pack("<HHQQ", 1, 16, 2**63, 2**63)}))
    yield "zip64-field-missing", "corrupt", "0xFFFFFFFF without a zip64 field", archive(swap(records, "data/0", central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF}))
    yield "zip64-field-short", "corrupt", "a zip64 field cut short", \
        archive(swap(records, "data/0", central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": struct.pack("<HHI", 1, 4, 16)}))
    yield "extra-too-long", "corrupt", "an extra field longer than its room", \
        archive(swap(records, "data/0", central={"extra": struct.pack("<HH", 0x4246, 100)}))
    yield "local-extra-too-long", "corrupt", "a local extra field longer than its room", archive(
        swap(records, "data/0", local={"extra": struct.pack("<HH", 0x4246, 100)}))
    yield "size-4-gib", "corrupt", "a record of 4 GiB in a small file", archive(
        swap(records, "data/0", central={"size": 0xFFFFFFFE, "packed": 0xFFFFFFFE}))
    marks = []
    archive(records, boundaries=marks)
    for i, cut in enumerate([*sorted(set(marks))[1:], len(good) - 1]):
        yield f"cut-{i:02}", "corrupt", f"cut at byte {cut}, a structure's edge", good[:cut]
    many = [Record(f"e/{i}", b"") for i in range(4)]
    yield "entries-at-limit", "ok", "as many entries as allowed", archive(records + many), f"zip_entries={count + 4}"
    yield "entries-over-limit", "limit", "one entry more than allowed", archive(records + many), f"zip_entries={count + 3}"


def torch_rows():
    def of(body, **options):
        return torch_file(proto(2) + body + STOP, **options)

    yield "tensor", "ok", "a tensor of four floats", of(rebuild())
    yield "strided", "ok", "stride 0: one element, seen four times", of(rebuild(stride=(0,)))
    yield "shape-past-storage", "corrupt", "five elements in a storage of four", of(rebuild(shape=(5,)))
    yield "offset-past-storage", "corrupt", "an offset of one, four elements", of(rebuild(offset=1))
    yield "offset-at-end", "ok", "an offset of three, one element", of(rebuild(offset=3, shape=(1,)))
    yield "offset-negative", "corrupt", "an offset of -1", of(rebuild(offset=-1))
    yield "offset-huge", "corrupt", "an offset of 2^62", of(rebuild(offset=2**62))
    yield "stride-past-storage", "corrupt", "stride 2 over four elements", of(rebuild(stride=(2,)))
    yield "stride-negative", "corrupt", "a negative stride", of(rebuild(stride=(-1,)))
    yield "stride-overflow", "corrupt", "stride x size past 2^64", of(rebuild(shape=(2**32, 2), stride=(2**32, 1)))
    yield "stride-rank", "corrupt", "two strides for one dimension", of(rebuild(stride=(1, 1)))
    yield "dimension-negative", "corrupt", "a dimension of -4", of(rebuild(shape=(-4,)))
    yield "empty-tensor", "ok", "no elements, whatever the strides", of(rebuild(storage=storage_id(count=0), shape=(0,)), data=b"")
    yield "volume-at-limit", "ok", "2^60 floats by stride 0: 2^62 bytes", of(rebuild(shape=(2**30, 2**30), stride=(0, 0)))
    yield "volume-over-limit", "limit", "one row more than 2^62 bytes", of(rebuild(shape=(2**30 + 1, 2**30), stride=(0, 0)))
    yield "dimension-past-int64", "limit", "a dimension of 2^63", of(rebuild(shape=(2**63,), stride=(0,)))
    yield "offset-nine-bytes", "ok", "an offset of 0 in nine bytes", of(rebuild(arguments=[
        storage_id(), long1(bytes(9)), tuple_of(number(4)), tuple_of(number(1)), FALSE,
        old_global("collections", "OrderedDict") + EMPTY_TUPLE + REDUCE]))
    yield "volume-overflow", "limit", "2^80 elements by stride 0", of(rebuild(shape=(2**40, 2**40), stride=(0, 0)))
    yield "rank-at-limit", "ok", "64 dimensions", of(rebuild(shape=(1,) * 64, stride=(1,) * 64))
    yield "rank-over-limit", "limit", "65 dimensions", of(rebuild(shape=(1,) * 65, stride=(1,) * 65))
    yield "storage-smaller-than-said", "corrupt", "the record has 12 bytes, the pickle says 16", of(rebuild(), data=bytes(12))
    yield "storage-larger-than-said", "corrupt", "the record has 20 bytes, the pickle says 16", of(rebuild(), data=bytes(20))
    yield "storage-count-negative", "corrupt", "a storage of -4 elements", of(rebuild(storage=storage_id(count=-4)))
    yield "storage-count-overflow", "corrupt", "a storage of 2^62 floats", of(rebuild(storage=storage_id(count=2**62)))
    yield "storage-missing", "corrupt", "no record data/0", of(rebuild(), data=None)
    yield "storage-key-path", "corrupt", "a storage key that climbs", of(rebuild(storage=storage_id(key="../data.pkl")))
    yield "storage-class-foreign", "corrupt", "os.system as the storage class", of(rebuild(storage=storage_id(kind="system", module="os")))
    yield "storage-class-other-module", "corrupt", "a FloatStorage that is not torch's", of(rebuild(storage=storage_id(module="os")))
    yield "storage-class-unknown", "ok", "a storage class of torch's that we do not read: the tensor stays an object", \
        of(rebuild(storage=storage_id(kind="QInt8Storage")))
    yield "persid-not-a-tuple", "corrupt", "a persistent id that is a string", of(rebuild(storage=long_text("0") + BINPERSID))
    yield "persid-not-storage", "corrupt", "a persistent id of another kind", \
        of(rebuild(storage=MARK + long_text("module") + NONE + TUPLE + BINPERSID))
    yield "rebuild-no-arguments", "corrupt", "a tensor from nothing", of(rebuild(arguments=[]))
    yield "rebuild-strings", "corrupt", "sizes that are strings", \
        of(rebuild(arguments=[storage_id(), number(0), tuple_of(long_text("4")), tuple_of(number(1)), FALSE, EMPTY_DICT]))
    def nested(depth):
        return of(EMPTY_LIST * depth + rebuild() + APPEND * depth)

    yield "depth-at-limit", "ok", "a tensor, two deep itself, in lists 62 deep", nested(62)
    yield "depth-over-limit", "limit", "a tensor in lists 63 deep", nested(63)
    yield "os-system", "ok", "a call of os.system is kept as data and never made", \
        of(old_global("os", "system") + tuple_of(long_text("touch /tmp/cairn-was-here")) + REDUCE)
    yield "big-endian", "unsupported", "written on a big-endian machine", of(rebuild(), byteorder=b"big")
    yield "byteorder-odd", "corrupt", "a byte order that is neither", of(rebuild(), byteorder=b"middle")
    yield "byteorder-missing", "ok", "torch before 2.1", of(rebuild(), byteorder=None)
    yield "version-missing", "corrupt", "no version record", of(rebuild(), version=None)
    yield "version-0", "unsupported", "version 0", of(rebuild(), version=b"0\n")
    yield "version-11", "unsupported", "a version of the future", of(rebuild(), version=b"11\n")
    yield "version-10", "ok", "the newest version", of(rebuild(), version=b"10\n")
    yield "version-text", "corrupt", "a version that is no number", of(rebuild(), version=b"three\n")
    yield "no-pickle", "corrupt", "no data.pkl", archive(torch_records()[1:])
    yield "torchscript", "unsupported", "a TorchScript archive", archive(
        [*torch_records(), Record("constants.pkl", b"\x80\2)."), Record("code/__torch__.py", b"pass")])
    yield "legacy-pickle", "unsupported", "torch.save before 1.6", \
        proto(2) + long1(bytes.fromhex("6cfc9c46f9206aa85019")) + STOP + proto(2) + b"M\xe9\x03" + STOP
    yield "legacy-tar", "unsupported", "torch.save before 0.1.10", b"sys_info".ljust(257, b"\0") + b"ustar\0" + bytes(249)
    yield "empty", "corrupt", "no bytes", b""
    yield "not-an-archive", "corrupt", "text", b"hello, world\n" * 10
    body = proto(2) + MARK + b"".join(long_text(f"{i:05}") for i in range(200)) + TUPLE + STOP
    yield "pickle-at-limit", "ok", "data.pkl as large as allowed", torch_file(body), f"torch_pickle_bytes={len(body)}"
    yield "pickle-over-limit", "limit", "data.pkl one byte larger than allowed", torch_file(body), f"torch_pickle_bytes={len(body) - 1}"


def blob_rows():
    room = 64 - len(torch_records())
    extra = [Record(f"e/{i}", b"x") for i in range(room)]
    yield "entries-at-limit", "ok", "64 records", archive(torch_records() + extra)
    yield "entries-over-limit", "limit", "65 records", archive([*torch_records(), *extra, Record("e/last", b"x")])
    def pickle(length):
        piece = long_text("x" * 65000)
        whole = (length - 300) // len(piece)
        rest = length - 5 - whole * len(piece) - 5
        return proto(2) + MARK + piece * whole + long_text("y" * rest) + TUPLE + STOP

    one = 1 << 20
    yield "pickle-at-limit", "ok", "data.pkl of 1 MiB", torch_file(pickle(one + 0))
    yield "pickle-over-limit", "limit", "data.pkl of 1 MiB and one byte", torch_file(pickle(one + 1))


def compressed_rows():
    def packed(size, extra_bytes=0, declared=None):
        squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = bytes(size)
        stored = squeezer.compress(data) + squeezer.flush() + b"\0" * extra_bytes
        return Record("bomb", data, stored=stored, method=8, central={} if declared is None else {"size": declared})

    # The length of the stream hardly depends on the size, so that one of these is a whole number of times as long.
    even = next(r for r in map(packed, range(1000, 1100)) if len(r.data) % len(r.stored) == 0)
    ratio = len(even.data) // len(even.stored)
    yield "ratio-at-limit", "ok", f"{ratio} times as large as stored", archive([even]), f"deflate_ratio={ratio}"
    yield "ratio-over-limit", "limit", f"more than {ratio - 1} times as large", archive([even]), f"deflate_ratio={ratio - 1}"
    yield "bomb", "limit", "1 MiB from 1 KiB", archive([packed(1 << 20)])
    yield "size-lie-small", "corrupt", "more bytes than declared", archive([packed(1000, declared=999)]), "deflate_ratio=1000"
    yield "size-lie-large", "corrupt", "fewer bytes than declared", archive([packed(1000, declared=1001)]), "deflate_ratio=1000"
    yield "tail", "corrupt", "bytes behind the deflate stream", archive([packed(1000, extra_bytes=3)]), "deflate_ratio=1000"
    yield "garbage", "corrupt", "no deflate stream", archive([Record("bomb", bytes(20), stored=b"\xff" * 20, method=8)])


def cases():
    for name, verdict, reason, data, *limits in zip_rows():
        yield f"zip-{name}", "torch", verdict, reason, data, *limits
    for name, verdict, reason, data, *limits in torch_rows():
        yield f"torch-{name}", "torch", verdict, reason, data, *limits
    for name, verdict, reason, data in blob_rows():
        yield f"blob-{name}", "blob", verdict, reason, data
    for name, verdict, reason, data, *limits in compressed_rows():
        yield f"deflate-{name}", "deflate", verdict, reason, data, *limits
    yield "strict-crc-zero", "strict-crc", "unsupported", "CRC not computed, and asked for", \
        archive([Record("a", b"x", crc=0)])
    yield "strict-crc-right", "strict-crc", "ok", "CRC computed, and asked for", archive([Record("a", b"x")])
