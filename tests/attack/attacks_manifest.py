"""Attacks on the manifest. Kind "manifest". The checksum is right wherever something else is wrong, so that
the lie itself has to be found."""

import struct

MAGIC = b"CAIRNMF\n"


def _table():
    rows = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        rows.append(i)
    return rows


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header(version=1, flags=0, block=1 << 20, magic=MAGIC):
    return magic + struct.pack("<II", version, flags) + bytes(range(16)) + struct.pack("<Q", block)


def section(name=b"__0_0.distcp", size=100, crcs=None, hashes=b"", items=((0, 40, 1), (40, 60, 2)),
    tag=b"FILE",
            name_bytes=None, item_count=None, block=1 << 20):
    if crcs is None:
        crcs = struct.pack("<I", 7) * -(-size // block)
    return tag + struct.pack("<IQQ", len(name) if name_bytes is None else name_bytes, size,
                             len(items) if item_count is None else item_count) + \
        name + crcs + hashes + b"".join(struct.pack("<QQI", *item) for item in items)


def manifest(*sections, head=None, files=None, items=None, blocks=None, length=None, tag=b"END ", crc=None,
    tail=b""):
    body = (header() if head is None else head) + b"".join(sections)
    files = len(sections) if files is None else files
    items = 2 * len(sections) if items is None else items
    blocks = len(sections) if blocks is None else blocks
    body += tag + struct.pack("<QQQQ", files, items, blocks, len(body) + 40 if length is None else length)
    return body + struct.pack("<I", crc32c(body) if crc is None else crc) + tail


def rows():
    """(name, verdict, reason, bytes[, limits])"""
    good = manifest(section())
    yield "plain", "ok", "one file", good
    yield "no-files", "ok", "no files", manifest()
    yield "strong", "ok", "with strong hashes", manifest(section(hashes=bytes(16)), head=header(flags=1))
    yield "empty-file", "ok", "a file of no bytes", manifest(section(size=0, items=()), items=0, blocks=0)
    yield "bytes-at-limit", "ok", "as large as allowed", good, f"manifest_bytes={len(good)}"
    yield "bytes-over-limit", "limit", "one byte larger than allowed", good, f"manifest_bytes={len(good) - 1}"
    yield "empty", "corrupt", "no bytes", b""
    yield "magic", "corrupt", "another magic", \
        manifest(section(), head=header(magic=b"CAIRNMG\n"))
    yield "version-0", "unsupported", "version 0", manifest(section(), head=header(version=0))
    yield "version-2", "unsupported", "version 2", manifest(section(), head=header(version=2))
    yield "flags", "unsupported", "a flag nobody knows", manifest(section(), head=header(flags=2))
    for block in (0, 3, 1 << 31, 1 << 63):
        yield f"block-{block}", "corrupt", "an impossible block size", \
            manifest(section(), head=header(block=block))
    yield "crc", "corrupt", "a wrong checksum", manifest(section(), crc=1)
    for bit in range(0, len(good) * 8, 97):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"flip-{bit:04}", "corrupt", f"bit {bit} flipped", bytes(flipped)
    for cut in sorted({7, 8, 39, 40, 63, 64, 76, 80, 100, len(good) - 40, len(good) - 4, len(good) - 1}):
        yield f"cut-{cut:03}", "corrupt", f"cut at byte {cut}", good[:cut]
    yield "tail", "corrupt", "a byte behind the end", manifest(section(), tail=b"\0")
    yield "twice", "corrupt", "two manifests", good + good
    yield "length", "corrupt", "another length in the end record", manifest(section(), length=7)
    yield "end-tag", "corrupt", "no end record", manifest(section(), tag=b"ENDE")
    yield "file-tag", "corrupt", "a section that is none", manifest(section(tag=b"DIRS"))
    yield "files", "corrupt", "another number of files", manifest(section(), files=2)
    yield "items", "corrupt", "another number of items", manifest(section(), items=3)
    yield "blocks", "corrupt", "another number of blocks", manifest(section(), blocks=2)
    yield "file-twice", "corrupt", "one file twice", manifest(section(), section())
    yield "size-huge", "corrupt", "a file of 2^63 bytes, with one checksum", \
        manifest(section(size=2**63, crcs=bytes(4)))
    yield "size-max", "corrupt", "a file of 2^64-1 bytes in blocks of one", manifest(
        section(size=2**64 - 1, crcs=bytes(4)), head=header(block=1))
    yield "crcs-missing", "corrupt", "a checksum too few", \
        manifest(section(size=(1 << 20) + 1, crcs=bytes(4)))
    yield "hashes-missing", "corrupt", "strong, but no hashes", manifest(section(), head=header(flags=1))
    yield "item-count-huge", "corrupt", "2^60 items", manifest(section(item_count=2**60))
    yield "item-count-overflow", "corrupt", "items x 20 past 2^64", \
        manifest(section(item_count=2**64 // 20 + 1))
    yield "items-overlap", "corrupt", "items that overlap", manifest(section(items=((0, 50, 1), (40, 60, 2))))
    yield "items-order", "corrupt", "items out of order", manifest(section(items=((40, 60, 1), (0, 40, 2))))
    yield "item-outside", "corrupt", "an item past the end", \
        manifest(section(items=((0, 40, 1), (40, 61, 2))))
    yield "item-overflow", "corrupt", "offset + length past 2^64", \
        manifest(section(items=((0, 40, 1), (2**64 - 1, 2, 2))))
    yield "name-bytes-huge", "corrupt", "a name of 4 GiB", manifest(section(name_bytes=2**32 - 1))
    for name, path in {"parent": b"../x", "absolute": b"/etc/passwd", "nul": b"a\0b", "empty": b"",
        "empty-part": b"a//b", "dot": b"./a",
                       "bad-utf8": b"\xff", "part-over-limit": b"a" * 256}.items():
        yield f"path-{name}", "limit" if "limit" in name else "corrupt", f"a file named {path[:20]!r}", manifest(section(name=path))
    yield "path-part-at-limit", "ok", "a file name of 255 bytes", manifest(section(name=b"a" * 255))


def cases():
    for name, verdict, reason, data, *limits in rows():
        yield f"manifest-{name}", "manifest", verdict, reason, data, *limits
