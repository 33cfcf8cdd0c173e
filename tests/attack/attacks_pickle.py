"""Attacks on the pickle machine itself: opcodes, stack, memo, frames, nesting.

Kind "pickle": a bare data.pkl, whose root may be any value.
"""

from assemble import *


def nested(depth):
    """A None inside `depth` lists."""
    return EMPTY_LIST * depth + NONE + APPEND * depth


def billion_laughs(levels, width=10):
    parts = [list_of(text("ha")) + put(0)]
    for level in range(1, levels + 1):
        parts.append(list_of(*[get(level - 1)] * width) + put(level))
    return tuple_of(*parts)


def cases():
    two, four = proto(2), proto(4)
    ok = four + list_of(number(1), text("a")) + STOP

    yield "pickle-plain", "pickle", "ok", "a list of two", ok
    for version in (2, 3, 4, 5):
        yield f"pickle-protocol-{version}", "pickle", "ok", "a protocol we read", proto(version) + NONE + STOP
    yield "pickle-protocol-0", "pickle", "unsupported", "the text protocol", b"(lp0\nI1\na."
    yield "pickle-protocol-1", "pickle", "unsupported", "no PROTO opcode", b"]K\x01a."
    yield "pickle-protocol-1-marked", "pickle", "unsupported", "PROTO 1", proto(1) + NONE + STOP
    yield "pickle-protocol-6", "pickle", "unsupported", "a protocol that does not exist", \
        proto(6) + NONE + STOP
    yield "pickle-protocol-twice", "pickle", "corrupt", "PROTO in the middle", \
        four + proto(4) + NONE + STOP
    yield "pickle-empty", "pickle", "corrupt", "no bytes", b""
    yield "pickle-only-proto", "pickle", "corrupt", "ends after PROTO", four
    yield "pickle-no-stop", "pickle", "corrupt", "STOP is missing", four + NONE
    yield "pickle-two-stops", "pickle", "corrupt", "bytes after STOP", four + NONE + STOP + STOP
    yield "pickle-tail", "pickle", "corrupt", "a second pickle behind the first", ok + ok
    yield "pickle-stop-on-empty-stack", "pickle", "corrupt", "STOP with nothing to return", four + STOP
    yield "pickle-stop-with-two-values", "pickle", "corrupt", "STOP with two values", \
        four + NONE + NONE + STOP
    yield "pickle-stop-with-mark", "pickle", "corrupt", "STOP with an open MARK", four + NONE + MARK + STOP
    yield "pickle-unknown-opcode", "pickle", "corrupt", "a byte that is no opcode", \
        four + b"\xff" + STOP

    for name, program in {
        "ext1": four + b"\x82\x01" + STOP,
        "ext2": four + b"\x83\x01\x00" + STOP,
        "ext4": four + b"\x84\x01\x00\x00\x00" + STOP,
        "inst": two + MARK + b"ios\nsystem\n" + STOP,
        "obj": two + MARK + name_of("os", "system") + text("true") + b"o" + STOP,
        "persid": two + b"Pevil\n" + STOP,
        "dup": four + NONE + DUP + TUPLE2 + STOP,
        "pop": four + NONE + NONE + POP + STOP,
        "pop-mark": four + NONE + MARK + NONE + b"1" + STOP,
        "string": two + b"S'a'\n" + STOP,
        "unicode": two + b"Va\n" + STOP,
        "int": two + b"I7\n" + STOP,
        "long": two + b"L7L\n" + STOP,
        "float": two + b"F0.5\n" + STOP,
        "list": two + MARK + NONE + b"l" + STOP,
        "dict": two + MARK + NONE + NONE + b"d" + STOP,
        "get": two + NONE + put(0) + b"g0\n" + STOP,
        "put": two + NONE + b"p0\n" + STOP,
        "long4": two + b"\x8b\x01\x00\x00\x00\x07" + STOP,
        "newobj-ex": four + name_of("torch", "Size") + EMPTY_TUPLE + EMPTY_DICT + b"\x92" + STOP,
        "bytearray8": proto(5) + b"\x96" + struct.pack("<Q", 1) + b"a" + STOP,
        "next-buffer": proto(5) + b"\x97" + STOP,
        "readonly-buffer": proto(5) + NONE + b"\x98" + STOP,
    }.items():
        why = "an opcode nobody emits here"
        yield f"pickle-op-{name}", "pickle", "unsupported", why, program
        yield f"metadata-op-{name}", "metadata", "unsupported", why, metadata(planner=program[2:-1])
    yield ("metadata-op-binpersid", "metadata", "unsupported", "persistent ids have no place in .metadata",
           metadata(planner=text("0") + BINPERSID))

    yield "pickle-mark-underflow", "pickle", "corrupt", "APPENDS without MARK", \
        four + EMPTY_LIST + NONE + APPENDS + STOP
    yield "pickle-tuple-without-mark", "pickle", "corrupt", "TUPLE without MARK", four + NONE + TUPLE + STOP
    yield "pickle-stack-underflow", "pickle", "corrupt", "TUPLE2 of one value", four + NONE + TUPLE2 + STOP
    yield "pickle-underflow-past-mark", "pickle", "corrupt", "TUPLE2 reaches below the MARK", \
        four + NONE + MARK + NONE + TUPLE2 + TUPLE + TUPLE2 + STOP
    yield "pickle-setitem-on-tuple", "pickle", "corrupt", "tuples do not change", \
        four + EMPTY_TUPLE + NONE + NONE + SETITEM + STOP
    yield "pickle-setitem-on-list", "pickle", "corrupt", "a list has no keys", \
        four + EMPTY_LIST + number(0) + NONE + SETITEM + STOP
    yield "pickle-append-on-dict", "pickle", "corrupt", "a dict has no end", \
        four + EMPTY_DICT + NONE + APPEND + STOP
    yield "pickle-append-on-string", "pickle", "corrupt", "a string is no list", \
        four + text("a") + NONE + APPEND + STOP
    yield "pickle-setitems-odd", "pickle", "corrupt", "a key without a value", \
        four + EMPTY_DICT + MARK + text("a") + SETITEMS + STOP
    yield "pickle-build-on-int", "pickle", "corrupt", "a number has no state", \
        four + number(1) + EMPTY_DICT + BUILD + STOP
    yield "pickle-reduce-on-int", "pickle", "corrupt", "a number cannot be called", \
        four + number(1) + EMPTY_TUPLE + REDUCE + STOP
    yield "pickle-reduce-args-list", "pickle", "corrupt", "arguments must be a tuple", \
        four + name_of("torch", "Size") + EMPTY_LIST + REDUCE + STOP
    yield "pickle-reduce-on-object", "pickle", "unsupported", "an object is called, as Python can", \
        four + call("functools", "partial", name_of("os", "system")) + EMPTY_TUPLE + REDUCE + STOP
    yield "pickle-build-twice", "pickle", "unsupported", "two states for one object, as Python can", \
        four + call("a", "B") + EMPTY_DICT + BUILD + EMPTY_DICT + BUILD + STOP
    yield "pickle-newobj-on-string", "pickle", "corrupt", "a string is no class", \
        four + text("a") + EMPTY_TUPLE + NEWOBJ + STOP
    yield "pickle-stack-global-of-int", "pickle", "corrupt", "names are strings", \
        four + number(1) + text("a") + STACK_GLOBAL + STOP
    yield "pickle-global-line-break", "pickle", "corrupt", "a class name that goes on as opcodes in protocol 2", \
        four + name_of("a\nb\n)R0cos\nsystem", "x") + EMPTY_TUPLE + REDUCE + STOP
    yield "pickle-memoize-on-empty-stack", "pickle", "corrupt", "nothing to remember", \
        four + MEMOIZE + NONE + STOP
    yield "pickle-put-over-mark", "pickle", "corrupt", "nothing above the MARK to remember", \
        four + NONE + MARK + put(0) + TUPLE + TUPLE2 + STOP

    yield "pickle-memo-unset", "pickle", "corrupt", "a get before the put", four + get(3) + STOP
    yield "pickle-memo-at-limit", "pickle", "ok", "a memo index 1,024 ahead", two + NONE + put(1024) + STOP
    yield "pickle-memo-over-limit", "pickle", "limit", "a memo index 1,025 ahead", two + NONE + put(1025) + STOP
    yield "pickle-memo-twice", "pickle", "corrupt", "one memo index for two values", \
        two + NONE + put(0) + NONE + put(0) + TUPLE2 + STOP
    yield "pickle-memo-twice-ahead", "pickle", "corrupt", "one memo index, ahead of the others, for two values", \
        two + NONE + put(9) + NONE + put(9) + TUPLE2 + STOP
    yield "pickle-memo-backwards", "pickle", "corrupt", "memo indexes that go back", \
        two + NONE + put(1) + NONE + put(0) + TUPLE2 + STOP
    yield "pickle-memo-gaps", "pickle", "ok", "memo indexes with gaps", \
        two + NONE + put(1) + NONE + put(5) + TUPLE2 + STOP
    yield "pickle-memo-huge", "pickle", "limit", "a memo of 4 G entries", two + NONE + put(0xFFFFFFFF) + STOP
    yield "pickle-memo-get-huge", "pickle", "corrupt", "a get of entry 4 G", two + get(0xFFFFFFFF) + STOP

    program = text("hello") + STOP
    yield "pickle-frame", "pickle", "ok", "a frame of the right length", four + frame(len(program)) + program
    yield "pickle-frame-too-long", "pickle", "corrupt", "a frame longer than the file", \
        four + frame(len(program) + 1) + program
    yield "pickle-frame-huge", "pickle", "corrupt", "a frame of 2^63 bytes", four + frame(2**63) + program
    yield "pickle-frame-nested", "pickle", "corrupt", "a frame inside a frame", \
        four + frame(len(program) + 9) + frame(len(program)) + program
    yield "pickle-frame-cuts-opcode", "pickle", "corrupt", \
        "a frame that ends inside an opcode: Python's two unpicklers disagree about it", \
        four + frame(4) + program
    yield "pickle-frame-cuts-last-opcode", "pickle", "corrupt", "a frame that ends inside the last string", \
        four + frame(len(program) - 2) + program
    yield "pickle-frame-cuts-frame", "pickle", "corrupt", "a frame that ends inside another FRAME", \
        four + frame(4) + frame(len(program)) + program
    yield "pickle-frame-short", "pickle", "ok", "opcodes behind the end of a frame", \
        four + frame(len(program) - 1) + program
    yield "pickle-frame-empty", "pickle", "ok", "a frame of nothing", four + frame(0) + program
    yield "pickle-frames", "pickle", "ok", "a frame after a frame", \
        four + frame(1) + MARK + frame(len(program)) + program[:-1] + TUPLE + STOP

    yield "pickle-string-too-long", "pickle", "corrupt", "a string of 4 GiB in a file of 10 bytes", \
        two + b"X" + struct.pack("<I", 0xFFFFFFFF) + b"abc" + STOP
    yield "pickle-string8-too-long", "pickle", "corrupt", "a string of 2^63 bytes", \
        four + b"\x8d" + struct.pack("<Q", 2**63) + b"abc" + STOP
    yield "pickle-string-long", "pickle", "ok", "a string longer than a .metadata may have", \
        two + long_text("x" * 65537) + STOP
    yield "pickle-string-past-16-mib", "pickle", "limit", "a string of 16 MiB and one byte", \
        two + long_text("x" * ((16 << 20) + 1)) + STOP
    hundred = two + long_text("x" * 100) + STOP
    yield "pickle-string-at-limit", "pickle", "ok", "a string as long as allowed", hundred, \
        "torch_string_bytes=100,string_bytes=100"
    yield "pickle-string-over-limit", "pickle", "limit", "a string one byte longer than allowed", hundred, \
        "torch_string_bytes=99,string_bytes=99"
    yield "pickle-bad-utf8", "pickle", "corrupt", "a string that is not UTF-8", \
        four + text(b"\xff\xfe") + STOP
    yield "pickle-overlong-utf8", "pickle", "corrupt", "a slash spelled in two bytes", \
        four + text(b"\xc0\xaf") + STOP
    yield "pickle-global-unterminated", "pickle", "corrupt", "GLOBAL without its second line", \
        two + b"cos\nsystem"
    yield "pickle-long1-255", "pickle", "ok", "an integer of 255 bytes", two + long1(b"\1" * 255) + STOP
    yield "pickle-long1-empty", "pickle", "ok", "LONG1 of no bytes is 0", two + long1(b"") + STOP
    yield "pickle-long1-truncated", "pickle", "corrupt", "LONG1 past the end", two + b"\x8a\x09\x01" + STOP

    yield "pickle-depth-at-limit", "pickle", "ok", "lists 64 deep", four + nested(64) + STOP
    yield "pickle-depth-over-limit", "pickle", "limit", "lists 65 deep", four + nested(65) + STOP
    yield "pickle-depth-100k", "pickle", "limit", "tuples 100,000 deep", \
        four + EMPTY_TUPLE + TUPLE1 * 100000 + STOP
    yield "pickle-marks-at-limit", "pickle", "ok", "64 open MARKs", four + MARK * 64 + TUPLE * 64 + STOP
    yield "pickle-marks-over-limit", "pickle", "limit", "65 open MARKs", four + MARK * 65 + TUPLE * 65 + STOP
    yield "pickle-marks-100k", "pickle", "limit", "100,000 open MARKs", \
        four + MARK * 100000 + TUPLE * 100000 + STOP
    yield "pickle-stack-long", "pickle", "ok", "65,537 values on the stack: the file's size is the limit", \
        two + MARK + NONE * 65537 + TUPLE + STOP
    yield "pickle-self-list", "pickle", "limit", "a list that holds itself", \
        two + EMPTY_LIST + put(0) + get(0) + APPEND + STOP
    yield "pickle-self-dict", "pickle", "limit", "a dict that holds itself", \
        two + EMPTY_DICT + put(0) + text("a") + get(0) + SETITEM + STOP
    yield "pickle-shared-twice", "pickle", "ok", "one list, used twice", \
        two + list_of(NONE) + put(0) + get(0) + TUPLE2 + STOP
    yield "pickle-billion-laughs", "pickle", "limit", "10^9 strings in 400 bytes", \
        four + billion_laughs(9) + STOP
    yield "pickle-one-string-20", "pickle", "ok", "20 names of one string of 60,000 bytes", \
        four + list_of(text("s" * 60000) + put(0), *[get(0)] * 20) + STOP
    yield "pickle-one-string-1000", "pickle", "limit", "1,000 names of one string of 60,000 bytes: 60 MB from 62 KB", \
        four + list_of(text("s" * 60000) + put(0), *[get(0)] * 1000) + STOP
    yield "pickle-one-key-1000", "pickle", "limit", "1,000 dicts whose one key is the same 60,000 bytes", \
        four + list_of(text("s" * 60000) + put(0), *[EMPTY_DICT + get(0) + NONE + SETITEM] * 1000) + STOP
    yield "pickle-class-name-at-limit", "pickle", "ok", "a class whose name has 512 bytes", \
        four + name_of("m" * 512, "n" * 512) + STOP
    yield "pickle-class-name-over-limit", "pickle", "limit", "a class whose name has 513 bytes", \
        four + name_of("m", "n" * 513) + STOP
    yield "pickle-bytes-at-limit", "pickle", "ok", "a pickle of exactly the allowed size", ok, \
        f"torch_pickle_bytes={len(ok)}"
    yield "pickle-bytes-over-limit", "pickle", "limit", "a pickle one byte larger than allowed", ok, \
        f"torch_pickle_bytes={len(ok) - 1}"
    yield "pickle-os-system", "pickle", "ok", "a call of os.system is kept as data and never made", \
        four + call("os", "system", text("touch /tmp/cairn-was-here")) + STOP
