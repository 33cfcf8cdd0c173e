"""Small files of large states: pickles that name one part many times, where a reader may make it anew each time.

CASES: name -> (parser, maker of a file of about that many bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import assemble as a

LONG = "s" * 60_000


def batches(part: bytes, size: int, begin: bytes = a.MARK, end: bytes = a.APPENDS) -> bytes:
    """The part again and again, a thousand at a time as CPython does."""
    batch = begin + part * 1000 + end
    return batch * max(1, size // len(batch))


def listed(first: bytes, part: bytes, size: int) -> bytes:
    """[first, part, part ...] with `first` as memo 0."""
    return a.EMPTY_LIST + first + a.MEMOIZE + a.APPEND + batches(part, size)


def planner(value: bytes) -> bytes:
    return a.metadata(planner=a.dict_of((a.text("w"), value)))


def rows(row: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    for i in range(size // len(row(1 << 20))):
        yield row(i)


def in_planner(first: bytes, part: bytes) -> Callable[[int], bytes]:
    return lambda size: planner(listed(first, part, size))


def set_of_strings(size: int) -> bytes:
    body = a.EMPTY_LIST + a.text(LONG) + a.MEMOIZE + a.APPEND + b"\x8f" + batches(a.get(0), size, end=b"\x90") + a.APPEND
    return planner(body)


def steps(size: int) -> bytes:
    path = a.MARK + a.get(0) * 1000 + a.TUPLE
    first = (a.text("first"), a.tuple_of(a.text(LONG) + a.MEMOIZE))
    return a.metadata(planner=a.dict_of(first, *((a.text(f"{i:x}"), path) for i in range(size // len(path)))))


def fetched_state(name: str, module: str, state: bytes, size: int) -> bytes:
    """Objects of one class that share their state: memo 0 is the class, memo 1 the state."""
    first = a.name_of(module, name) + a.MEMOIZE + a.EMPTY_TUPLE + a.NEWOBJ + state + a.MEMOIZE + a.BUILD
    again = a.get(0) + a.EMPTY_TUPLE + a.NEWOBJ + a.get(1) + a.BUILD
    return a.EMPTY_LIST + first + a.APPEND + batches(again, size)


def chunk_states(size: int) -> bytes:
    nones = a.EMPTY_LIST + batches(a.NONE, 1)
    state = a.attributes(offsets=a.size(0), sizes=a.size(4), more=nones)
    return a.metadata(more=fetched_state("ChunkStorageMetadata", a.CHECKPOINT, state, size))


def path_object(size: int) -> bytes:
    """Where the checkpoint was, as a path of parts that are one string."""
    parts = a.MARK + a.get(0) * min(size // 2, 60_000) + a.TUPLE
    path = a.name_of("pathlib", "PosixPath") + parts + a.REDUCE
    meta = a.instance(a.CHECKPOINT, "StorageMeta", a.attributes(save_id=a.text(LONG) + a.MEMOIZE, checkpoint_id=path))
    return a.metadata(storage_meta=meta)


def transforms(size: int) -> bytes:
    """One item with a list of one long name."""
    info = a.attributes(relative_path=a.text("__0_0.distcp"), offset=a.number(0), length=a.number(16),
                        transform_descriptors=listed(a.text(LONG), a.get(0), size))
    return a.metadata(storage=a.dict_of((a.index("w", a.size(0), a.number(0)),
                                         a.instance(a.FILESYSTEM, "_StorageInfo", info))))


def kinds_of_transforms(size: int) -> bytes:
    """Many items, no two with the same list."""
    def row(i: int) -> bytes:
        info = a.attributes(relative_path=a.text("f"), offset=a.number(0), length=a.number(16),
                            transform_descriptors=a.list_of(a.text(f"{i:x}")))
        return a.index(f"{i:x}") + a.instance(a.FILESYSTEM, "_StorageInfo", info)
    return a.metadata(storage=a.EMPTY_DICT + b"".join(a.MARK + r + a.SETITEMS for r in rows(row, size)))


def items(size: int) -> bytes:
    """Rows that are one index, memo 0, and one place, memo 1, both with a long attribute that nobody knows."""
    index = a.attributes(fqn=a.text("w"), index=a.NONE, more=a.text(LONG))
    place = a.attributes(relative_path=a.text("f"), offset=a.number(0), length=a.number(1), more=a.text(LONG))
    first = a.instance(a.CHECKPOINT, "MetadataIndex", index) + a.MEMOIZE + \
        a.instance(a.FILESYSTEM, "_StorageInfo", place) + a.MEMOIZE
    again = batches(a.get(0) + a.get(1), size, end=a.SETITEMS)
    return a.metadata(storage=a.EMPTY_DICT + a.MARK + first + a.SETITEMS + again)


def opaque_fields(size: int) -> bytes:
    """Fields that nobody knows, all with the same large object of a class that nobody knows."""
    nones = a.EMPTY_LIST + batches(a.NONE, size)
    first = a.name_of("m", "n") + a.tuple_of(nones) + a.REDUCE + a.MEMOIZE
    return a.metadata(first=first, **{f"again{i}": a.get(0) for i in range(100)})


def entries(tensor: bytes, size: int) -> bytes:
    """Tensors of many names that are one object, memo 0."""
    first = a.text("w") + tensor + a.MEMOIZE
    made = b"".join(a.MARK + r + a.SETITEMS for r in rows(lambda i: a.text(f"{i:x}") + a.get(0), size))
    return a.metadata(state=a.EMPTY_DICT + a.MARK + first + a.SETITEMS + made)


def tensors(size: int) -> bytes:
    return entries(a.tensor((1,) * 64), size)


def properties(size: int) -> bytes:
    fields = [a.dtype(), a.layout(), a.FALSE, a.memory_format(), a.FALSE, a.EMPTY_LIST + batches(a.NONE, 1)]
    return entries(a.tensor(props=a.properties(fields)), size)


def chunks(size: int) -> bytes:
    one = a.chunk(a.size(*[0] * 64), a.size(*[1] * 64))
    return a.metadata(state=a.dict_of((a.text("w"), a.tensor((1,) * 64, chunks=listed(one, a.get(0), size)))))


def sizes(size: int) -> bytes:
    """In a field nobody knows, where sizes are known already."""
    return a.metadata(more=listed(a.size(*[1] * 64), a.get(0), size))


def classes(size: int) -> bytes:
    """Names of classes that are long, and shared."""
    return planner(listed(a.text(LONG), a.get(0) + a.get(0) + a.STACK_GLOBAL, size))


def colliding(size: int) -> bytes:
    """Numbers that differ in their upper bits only."""
    key = lambda i: a.long1((i << 44).to_bytes(9, "little")) + a.NONE  # noqa: E731
    return planner(a.EMPTY_DICT + b"".join(a.MARK + r + a.SETITEMS for r in rows(key, size)))


def torch(first: bytes, part: bytes) -> Callable[[int], bytes]:
    return lambda size: a.torch_file(a.proto(4) + listed(first, part, size) + a.STOP)


def torch_calls(size: int) -> bytes:
    """Tensors that are made from the same arguments, each for itself."""
    rank = 64
    whole = a.rebuild(shape=(1,) * rank, stride=(1,) * rank)
    head = a.old_global("torch._utils", "_rebuild_tensor_v2")
    first = head + a.MEMOIZE + whole[len(head):-1] + a.MEMOIZE + a.REDUCE
    return a.torch_file(a.proto(4) + a.EMPTY_LIST + first + a.APPEND +
                        batches(a.get(0) + a.get(1) + a.REDUCE, size) + a.STOP)


NONES = a.EMPTY_LIST + batches(a.NONE, 1)
OBJECT = a.name_of("m" * 500, "n" * 500)
RANK_64 = a.rebuild(shape=(1,) * 64, stride=(1,) * 64)

CASES: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "one-string": ("metadata", in_planner(a.text(LONG), a.get(0))),
    "one-bytes": ("metadata", in_planner(b"B" + len(LONG).to_bytes(4, "little") + LONG.encode(), a.get(0))),
    "one-key": ("metadata", in_planner(a.text(LONG), a.EMPTY_DICT + a.get(0) + a.NONE + a.SETITEM)),
    "one-list": ("metadata", in_planner(NONES, a.get(0))),
    "one-class": ("metadata", in_planner(OBJECT, a.get(0) + a.EMPTY_TUPLE + a.REDUCE)),
    "one-string-in-sets": ("metadata", set_of_strings),
    "one-step": ("metadata", steps),
    "one-size": ("metadata", sizes),
    "one-state": ("metadata", chunk_states),
    "one-part-of-a-path": ("metadata", path_object),
    "one-transform": ("metadata", transforms),
    "kinds-of-transforms": ("metadata", kinds_of_transforms),
    "one-item": ("metadata", items),
    "one-object-in-fields": ("metadata", opaque_fields),
    "one-tensor": ("metadata", tensors),
    "one-kind-of-tensor": ("metadata", properties),
    "one-chunk": ("metadata", chunks),
    "long-classes": ("metadata", classes),
    "colliding": ("metadata", colliding),
    "torch-one-string": ("torch", torch(a.text(LONG * 100), a.get(0))),
    "torch-one-tensor": ("torch", torch(RANK_64, a.get(0))),
    "torch-one-call": ("torch", torch_calls),
}
