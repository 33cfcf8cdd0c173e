"""Attacks on the .metadata reader: classes, states, sizes, names and paths. Kind "metadata"."""

from assemble import *


def rows():
    """(name, verdict, reason, bytes[, limits])"""
    good = metadata()
    yield "plain", "ok", "one tensor", good
    yield "protocol-2", "ok", "protocol 2", old_metadata(2)
    yield "protocol-3", "ok", "protocol 3", old_metadata(3)
    yield "protocol-5", "ok", "protocol 5", metadata(version=5)
    yield "protocol-1", "unsupported", "protocol 1", old_metadata(1)
    yield "protocol-6", "unsupported", "protocol 6", metadata(version=6)
    yield "bytes-at-limit", "ok", "exactly as large as allowed", good, f"metadata_bytes={len(good)}"
    yield "bytes-over-limit", "limit", "one byte larger than allowed", good, f"metadata_bytes={len(good) - 1}"
    yield "empty", "corrupt", "no bytes", b""
    yield "tail", "corrupt", "a byte behind STOP", good + b"\0"
    yield "no-stop", "corrupt", "STOP is missing", good[:-1]
    for i in range(8):
        cut = 2 + (len(good) - 3) * i // 8
        yield f"truncated-{i}", "corrupt", f"cut at {i}/8", good[:cut]

    # Code that a real unpickler would run.
    root = proto(4) + call("os", "system", text("touch /tmp/cairn-was-here")) + STOP
    yield "root-os-system", "unsupported", "os.system at the root", root
    root = proto(4) + call("builtins", "eval", text("1/0")) + STOP
    yield "root-eval", "unsupported", "eval at the root", root
    yield "root-exec-old", "unsupported", "exec by GLOBAL", \
        proto(2) + old_global("__builtin__", "exec") + text("1/0") + TUPLE1 + REDUCE + STOP
    yield "root-global", "unsupported", "a bare class at the root", \
        proto(4) + name_of("os", "system") + STOP
    yield "root-int", "unsupported", "a number at the root", proto(4) + number(7) + STOP
    yield "root-dict", "unsupported", "a dict at the root", proto(4) + EMPTY_DICT + STOP
    yield "root-other-class", "unsupported", "a chunk at the root", \
        proto(4) + chunk(size(0), size(1)) + STOP
    evil = call("os", "system", text("true"))
    yield "planner-os-system", "ok", "planner_data may hold anything; it is kept and never run", \
        metadata(planner=evil)
    yield "state-os-system", "corrupt", "a call where the entries should be", metadata(state=evil)
    yield "entry-os-system", "unsupported", "a call where a tensor should be", \
        metadata(state=dict_of((text("w"), evil)))
    yield "dtype-os-system", "corrupt", "a call where a dtype should be", \
        metadata(state=dict_of((text("w"),
            tensor(props=properties([evil, layout(), FALSE, memory_format(), FALSE])))))
    yield "size-os-system", "corrupt", "a call where a size should be", \
        metadata(state=dict_of((text("w"), tensor(whole=evil))))
    yield "path-os-system", "corrupt", "a call where a path should be", \
        metadata(storage=dict_of((index("w", size(0)), place(path=evil))))
    yield "layout-other-function", "corrupt", "another function where _get_layout should be", \
        metadata(state=dict_of((text("w"), tensor(props=properties(
            [dtype(), call("torch.serialization", "load", text("x")), FALSE, memory_format(), FALSE])))))
    yield "reduce-metadata-class", "corrupt", "Metadata by REDUCE with arguments", \
        proto(4) + call(CHECKPOINT, "Metadata", EMPTY_DICT, NONE, NONE) + STOP
    yield "class-in-builtins", "unsupported", "Metadata from another module", \
        proto(4) + instance("builtins", "Metadata", attributes(state_dict_metadata=EMPTY_DICT)) + STOP
    yield "dotted-name", "unsupported", "a name with dots climbs to another module", \
        proto(4) + instance(CHECKPOINT, "os.system", attributes(state_dict_metadata=EMPTY_DICT)) + STOP

    # Wrong shapes of right classes.
    def one(entry):
        return metadata(state=dict_of((text("w"), entry)))

    yield "state-missing", "corrupt", "no state_dict_metadata", \
        proto(4) + instance(CHECKPOINT, "Metadata", attributes(planner_data=NONE)) + STOP
    yield "state-list", "corrupt", "entries in a list", metadata(state=list_of(text("w")))
    yield "state-int-key", "corrupt", "an entry named 7", \
        metadata(state=dict_of((number(7), tensor())))
    yield "build-with-list", "corrupt", "a state that is a list", \
        proto(4) + instance(CHECKPOINT, "Metadata", EMPTY_LIST) + STOP
    yield "build-twice", "unsupported", "two states for one object", \
        good[:-1] + attributes(state_dict_metadata=EMPTY_DICT) + BUILD + STOP
    yield "newobj-with-arguments", "corrupt", "a class called with arguments", \
        proto(4) + name_of(CHECKPOINT,
            "Metadata") + tuple_of(NONE) + NEWOBJ + attributes(state_dict_metadata=EMPTY_DICT) + BUILD + STOP
    yield "size-two-arguments", "corrupt", "torch.Size of two arguments", \
        one(tensor(whole=call("torch", "Size", tuple_of(), tuple_of())))
    yield "size-no-arguments", "corrupt", "torch.Size of nothing", \
        one(tensor(whole=call("torch", "Size")))
    yield "size-of-string", "corrupt", "torch.Size of a string", \
        one(tensor(whole=call("torch", "Size", text("ab"))))
    yield "size-with-string", "corrupt", "a dimension that is a string", \
        one(tensor(whole=call("torch", "Size", tuple_of(text("4")))))
    yield "size-with-float", "corrupt", "a dimension that is a float", \
        one(tensor(whole=call("torch", "Size", tuple_of(b"G" + struct.pack(">d", 4.0)))))
    yield "properties-of-four", "corrupt", "TensorProperties of four", \
        one(tensor(props=properties([dtype(), layout(), FALSE, memory_format()])))
    yield "properties-of-six", "ok", "TensorProperties of six, as a later torch wrote it", \
        one(tensor(props=properties([dtype(), layout(), FALSE, memory_format(), FALSE, tuple_of(number(1))])))
    yield "properties-dict", "corrupt", "TensorProperties with a dict state that is empty", \
        one(tensor(props=instance(CHECKPOINT, "TensorProperties", EMPTY_DICT)))
    yield "properties-int-flag", "corrupt", "requires_grad that is a string", \
        one(tensor(props=properties([dtype(), layout(), text("no"), memory_format(), FALSE])))
    yield "dtype-unknown", "unsupported", "torch.float99", \
        one(tensor(props=properties([dtype("float99"), layout(), FALSE, memory_format(), FALSE])))
    yield "dtype-not-a-dtype", "unsupported", "torch.load where a dtype should be", \
        one(tensor(props=properties([dtype("load"), layout(), FALSE, memory_format(), FALSE])))
    yield "layout-unknown", "unsupported", "a layout of the future", \
        one(tensor(props=properties([dtype(), layout("torch.blocked"), FALSE, memory_format(), FALSE])))
    yield "layout-not-a-name", "corrupt", "a layout that is a number", \
        one(tensor(props=properties([dtype(), call("torch.serialization", "_get_layout", number(1)), FALSE,
            memory_format(), FALSE])))
    yield "memory-format-text", "corrupt", "a memory format that is a string", \
        one(tensor(props=properties([dtype(), layout(), FALSE,
            call(CHECKPOINT, "_MEM_FORMAT_ENCODING", text("0")), FALSE])))
    yield "memory-format-unknown", "unsupported", "memory format 9", \
        one(tensor(props=properties([dtype(), layout(), FALSE, memory_format(9), FALSE])))
    yield "bytes-state-int", "corrupt", "BytesStorageMetadata whose state is a number", \
        one(instance(CHECKPOINT, "BytesStorageMetadata", number(2**30)))
    yield "bytes-state-tuple", "corrupt", "BytesStorageMetadata whose state is a tuple", \
        one(instance(CHECKPOINT, "BytesStorageMetadata", tuple_of(text("a"), NONE)))
    yield "bytes-state", "ok", "BytesStorageMetadata with an attribute nobody knows", \
        one(instance(CHECKPOINT, "BytesStorageMetadata", attributes(note=NONE)))
    yield "properties-of-six-size", "ok", "a sixth value that is a torch.Size", \
        one(tensor(props=properties([dtype(), layout(), FALSE, memory_format(), FALSE, size(1)])))
    yield "storage-meta-int", "unsupported", "storage_meta that is a number", metadata(storage_meta=number(1))
    yield "storage-meta-state-int", "corrupt", "StorageMeta whose state is a number", \
        metadata(storage_meta=instance(CHECKPOINT, "StorageMeta", number(1)))
    yield "storage-meta-modules", "corrupt", "modules that are a number", \
        metadata(storage_meta=instance(CHECKPOINT, "StorageMeta", attributes(modules=number(1))))
    yield "version-int", "corrupt", "a version that is a number", \
        proto(4) + instance(CHECKPOINT, "Metadata", attributes(state_dict_metadata=EMPTY_DICT, version=number(1))) + STOP
    yield "chunk-is-int", "corrupt", "a number among the chunks", \
        one(tensor(chunks=list_of(number(1))))
    yield "chunks-not-a-list", "corrupt", "chunks in a dict", one(tensor(chunks=EMPTY_DICT))
    yield "chunk-rank-mismatch", "corrupt", "offsets of one dimension, sizes of two", \
        one(tensor((4,), chunks=list_of(chunk(size(0), size(2, 2)))))
    yield "chunk-rank-differs-from-tensor", "corrupt", "a chunk of two dimensions in a tensor of one", \
        one(tensor((4,), chunks=list_of(chunk(size(0, 0), size(2, 2)))))
    yield "chunk-outside", "ok", "a chunk beyond the tensor: the cover is judged later, by name", \
        one(tensor((4,), chunks=list_of(chunk(size(2), size(4)))))
    yield "chunk-overlap", "ok", "chunks that overlap: the cover is judged later, by name", \
        one(tensor((4,), chunks=list_of(chunk(size(0), size(3)), chunk(size(2), size(2)))))
    yield "chunk-negative-offset", "corrupt", "an offset of -1", \
        one(tensor((4,), chunks=list_of(chunk(size(-1), size(4)))))
    yield "chunk-negative-size", "corrupt", "a size of -1", \
        one(tensor((4,), chunks=list_of(chunk(size(0), size(-1)))))
    yield "chunk-missing-sizes", "corrupt", "a chunk without sizes", \
        one(tensor(chunks=list_of(instance(CHECKPOINT, "ChunkStorageMetadata", attributes(offsets=size(0))))))
    yield "tensor-missing-size", "corrupt", "a tensor without a size", \
        one(instance(CHECKPOINT, "TensorStorageMetadata",
            attributes(properties=properties(), chunks=EMPTY_LIST)))
    yield "tensor-negative-dim", "corrupt", "a dimension of -4", one(tensor(whole=size(-4)))
    yield "tensor-rank-at-limit", "ok", "64 dimensions", one(tensor((1,) * 64))
    yield "tensor-rank-over-limit", "limit", "65 dimensions", one(tensor((1,) * 65))
    yield "tensor-volume-at-limit", "ok", "2^60 floats: 2^62 bytes", one(tensor((2**30, 2**30)))
    yield "tensor-volume-over-limit", "limit", "one row more than 2^62 bytes", one(tensor((2**30 + 1, 2**30)))
    yield "tensor-volume-overflow", "limit", "a product past 2^64", one(tensor((2**40, 2**40)))
    yield "tensor-volume-wraps-to-zero", "limit", "a product that is 0 in 64 bits", \
        one(tensor((2**32, 2**32)))
    yield "dimension-past-int64", "limit", "a dimension of 2^63", one(tensor(whole=size(2**63)))
    yield "duplicate-entry", "corrupt", "one name twice", \
        metadata(state=dict_of((text("w"), tensor()), (text("w"), tensor((5,)))))
    yield "duplicate-attribute", "corrupt", "one attribute twice", \
        proto(4) + instance(CHECKPOINT, "Metadata",
            dict_of((text("state_dict_metadata"), EMPTY_DICT),
            (text("state_dict_metadata"), EMPTY_DICT))) + STOP
    yield "duplicate-unknown-attribute", "corrupt", "one attribute nobody knows, twice", \
        proto(4) + instance(CHECKPOINT, "Metadata",
            dict_of((text("state_dict_metadata"), EMPTY_DICT), (text("note"), NONE), (text("note"), NONE))) + STOP
    yield "duplicate-path", "corrupt", "one name twice in planner_data", \
        metadata(planner=dict_of((text("w"), tuple_of(text("w"))), (text("w"), tuple_of(text("v")))))
    pieces = list_of(chunk(size(0), size(2))) + put(0)
    late = get(0) + chunk(size(2), size(2)) + APPEND
    yield "chunks-changed-later", "unsupported", "a chunk added to a tensor that is complete: Python would see it", \
        metadata(state=dict_of((text("w"), tensor((4,), chunks=pieces))), planner=late)
    yield "entries-changed-later", "unsupported", "an entry added when the entries are complete", \
        metadata(state=dict_of((text("w"), tensor())) + put(0), planner=get(0) + text("v") + blob() + SETITEM)
    yield "list-used-twice", "ok", "a list fetched and not changed", \
        metadata(planner=tuple_of(list_of(NONE) + put(0), get(0), list_of(get(0))))
    yield "lists-used-20k-times", "ok", "20,000 fetched lists below one that grows", metadata(
        planner=MARK + EMPTY_LIST + put(0) + get(0) * 20000 + EMPTY_LIST + (NONE + APPEND) * 20000 + TUPLE)
    yield "duplicate-storage", "corrupt", "one item at two places", \
        metadata(storage=dict_of((index("w", size(0)), place()), (index("w", size(0)), place(offset=16))))

    # Where the bytes are.
    def at(path="a", offset=0, length=16):
        return metadata(storage=dict_of((index("w", size(0)), place(path, offset, length))))

    yield "offset-negative", "corrupt", "an offset of -1", at(offset=-1)
    yield "length-negative", "corrupt", "a length of -1", at(length=-1)
    yield "offset-plus-length-overflow", "limit", "an end past 2^63", \
        at(offset=2**63 - 1, length=2**63 - 1)
    yield "offset-nine-bytes", "ok", "an offset of 16 in the nine bytes LONG1 may have", \
        at(offset=long1((16).to_bytes(9, "little")))
    yield "offset-largest", "ok", "an offset of 2^63-17 in nine bytes", \
        at(offset=long1((2**63 - 17).to_bytes(9, "little")))
    yield "offset-minus-one-in-nine-bytes", "corrupt", "an offset of -1 in nine bytes", at(offset=long1(b"\xff" * 9))
    yield "offset-past-int64", "limit", "an offset of 2^63: no file is so long", at(offset=2**63)
    yield "long1-ten-bytes", "limit", "LONG1 of ten bytes", \
        at(offset=long1(b"\1" + b"\0" * 9))
    yield "long1-at-limit", "ok", "LONG1 of nine bytes, where any number may stand", \
        metadata(planner=long1(b"\xff" * 8 + b"\0"))
    yield "long1-over-limit", "limit", "LONG1 of ten bytes, where any number may stand", \
        metadata(planner=long1(b"\xff" * 9 + b"\0"))
    yield "offset-string", "corrupt", "an offset that is a string", at(offset=text("0"))
    yield "offset-float", "corrupt", "an offset that is a float", \
        at(offset=b"G" + struct.pack(">d", 1.0))
    deep = "/".join(["a" * 255] * 15)
    for name, path, verdict in (
        ("parent", "../x", "corrupt"), ("parent-inside", "a/../../x", "corrupt"),
            ("parent-last", "a/..", "corrupt"),
        ("absolute", "/etc/passwd", "corrupt"), ("nul", "a\0b", "corrupt"), ("empty", "", "corrupt"),
        ("dot", ".", "corrupt"), ("dot-slash", "./a", "corrupt"), ("empty-part", "a//b", "corrupt"),
        ("trailing-slash", "a/", "corrupt"), ("part-at-limit", "a" * 255, "ok"),
            ("part-over-limit", "a" * 256, "limit"),
        ("at-limit", f"{deep}/{'b' * 128}/{'c' * 127}", "ok"),
            ("over-limit", f"{deep}/{'b' * 128}/{'c' * 128}", "limit"),
        ("backslash", "a\\b", "ok"), ("subfolder", "a/b.distcp", "ok"), ("dots-in-name", "..a", "ok"),
    ):
        yield f"path-{name}", verdict, f"relative_path {path[:20]!r} ({len(path)} bytes)", at(path)
    yield "fqn-at-limit", "ok", "a name of 65,536 bytes", \
        metadata(state=dict_of((text("n" * 65536), blob())), storage=EMPTY_DICT)
    yield "fqn-over-limit", "limit", "a name of 65,537 bytes", \
        metadata(state=dict_of((text("n" * 65537), blob())), storage=EMPTY_DICT)
    yield "index-fqn-at-limit", "ok", "a storage name of 65,536 bytes", \
        metadata(storage=dict_of((index("n" * 65536), place())))
    yield "index-fqn-over-limit", "limit", "a storage name of 65,537 bytes", \
        metadata(storage=dict_of((index("n" * 65537), place())))
    yield "fqn-bad-utf8", "corrupt", "a name that is not UTF-8", \
        metadata(state=dict_of((text(b"\xff"), blob())))
    yield "index-is-string", "ok", "storage_data keyed by strings belongs to a foreign storage", \
        metadata(storage=dict_of((text("w"), place())))
    yield "place-is-int", "ok", "numbers where places should be belong to a foreign storage", \
        metadata(storage=dict_of((index("w"), number(1))))

    # Size and nesting.
    yield "planner-string-at-limit", "ok", "a string of 64 KiB", metadata(planner=text("x" * 65536))
    yield "planner-string-over-limit", "limit", "a string of 64 KiB and one byte", \
        metadata(planner=text("x" * 65537))
    def lists(depth):
        return EMPTY_LIST * depth + NONE + APPEND * depth

    yield "planner-depth-at-limit", "ok", "lists 63 deep, with the object around them 64", metadata(planner=lists(63))
    yield "planner-depth-over-limit", "limit", "lists 64 deep, with the object around them 65", metadata(planner=lists(64))
    yield "extra-depth-at-limit", "ok", "lists 59 deep, as deep as in a chunk", metadata(note=lists(59))
    yield "extra-depth-over-limit", "limit", "lists 60 deep", metadata(note=lists(60))
    yield "planner-opaque-depth", "limit", "an object 40 deep in lists 40 deep", metadata(
        planner=EMPTY_LIST * 40 + (name_of("a", "B") + MARK) * 8 + lists(32) + (TUPLE + REDUCE) * 8 + APPEND * 40)
    yield "planner-depth-100k", "limit", "tuples 100,000 deep", \
        metadata(planner=EMPTY_TUPLE + TUPLE1 * 100000)
    yield "planner-marks-at-limit", "ok", "60 MARKs, with the four around them 64", \
        metadata(planner=MARK * 63 + TUPLE * 63)
    yield "planner-marks-over-limit", "limit", "65 open MARKs", metadata(planner=MARK * 65 + TUPLE * 65)
    yield "planner-self-list", "ok", "a list that holds itself, kept as it is", \
        metadata(planner=EMPTY_LIST + put(0) + get(0) + APPEND)
    parts = [list_of(text("ha")) + put(0)] + [list_of(*[get(n)] * 10) + put(n + 1) for n in range(9)]
    yield "planner-billion-laughs", "ok", "10^9 strings in 400 bytes, not unfolded", metadata(planner=tuple_of(*parts))
    yield "memo-at-limit", "ok", "a memo index 1,024 ahead", metadata(planner=NONE + put(1024))
    yield "memo-over-limit", "limit", "a memo index 1,025 ahead", metadata(planner=NONE + put(1025))
    yield "memo-unset", "corrupt", "a get before the put", metadata(planner=get(9))
    yield "stack-at-limit", "ok", "values on the stack, with those below them 65,536", \
        metadata(planner=MARK + NONE * (65536 - 5) + TUPLE)
    yield "stack-over-limit", "limit", "65,537 values on the stack", \
        metadata(planner=MARK + NONE * 65537 + TUPLE)
    yield "shared-size", "ok", "one torch.Size used three times", \
        metadata(state=dict_of((text("w"),
            tensor(whole=size(0) + MEMOIZE, chunks=list_of(chunk(get(0), get(0)))))))
    yield "shared-tensor", "ok", "two entries, one object", \
        metadata(state=dict_of((text("a"), tensor() + put(0)), (text("b"), get(0))), storage=EMPTY_DICT)
    pieces = list_of(*(chunk(size(i), size(1)) for i in range(500)))
    entries = [(text("t"), tensor((500,), chunks=pieces) + put(0))]
    entries += [(text(f"t{i}"), get(0)) for i in range(2000)]
    yield "shared-tensor-laughs", "limit", "2,000 entries share 500 chunks: a million from 60 KiB", \
        metadata(state=dict_of(*entries), storage=EMPTY_DICT)
    entries = [(text("t"), tensor((500,), chunks=pieces + put(0)))]
    entries += [(text(f"t{i}"), tensor((500,), chunks=get(0))) for i in range(2000)]
    yield "shared-chunks-laughs", "limit", "2,000 tensors share one list of 500 chunks", \
        metadata(state=dict_of(*entries), storage=EMPTY_DICT)
    big = [dtype(), layout(), FALSE, memory_format(), FALSE, text("s" * 60000)]
    entries = [(text("t"), tensor(props=properties(big)) + put(0))] + [(text(f"t{i}"), get(0)) for i in range(1000)]
    yield "shared-properties-laughs", "limit", "1,000 entries share 60,000 bytes that a later torch appended", \
        metadata(state=dict_of(*entries), storage=EMPTY_DICT)
    yield "planner-one-step-20", "ok", "a path of 20 steps that are one string of 60,000 bytes", \
        metadata(planner=dict_of((text("w"), tuple_of(text("s" * 60000) + put(0), *[get(0)] * 19))))
    yield "planner-one-step-1000", "limit", "a path of 1,000 steps that are one string of 60,000 bytes", \
        metadata(planner=dict_of((text("w"), tuple_of(text("s" * 60000) + put(0), *[get(0)] * 999))))
    yield "transforms-one-name", "limit", "1,000 transforms whose one name has 60,000 bytes", \
        metadata(storage=dict_of((index("w", size(0), number(0)), instance(FILESYSTEM, "_StorageInfo", attributes(
            relative_path=text("f"), offset=number(0), length=number(16),
            transform_descriptors=list_of(text("s" * 60000) + put(0), *[get(0)] * 999))))))
    yield "size-in-unknown-field", "ok", "a torch.Size in a field of Metadata that nobody knows", \
        metadata(more=size(4, 5, 6))
    yield "size-in-storage-meta", "ok", "a torch.Size in a field of StorageMeta that nobody knows", \
        metadata(storage_meta=instance(CHECKPOINT, "StorageMeta", attributes(more=size(4, 5, 6))))
    many = dict_of(*((text(f"layer.{i}"), tensor()) for i in range(300)))
    yield "many-entries", "ok", "300 tensors", metadata(state=many, storage=EMPTY_DICT)


def cases():
    for name, verdict, reason, data, *limits in rows():
        yield f"metadata-{name}", "metadata", verdict, reason, data, *limits
