// The quick way: objects in the one form in which CPython pickles DCP's dataclasses, taken straight from
// the program. Whatever looks different is left to the machine.

#include <algorithm>
#include <array>

#include "format/dcp_reducer.h"

namespace cairn {

using pickle::Cursor;
using pickle::Graph;
using pickle::Kind;
using pickle::Ref;
using namespace std::string_view_literals;

namespace {

// SETITEMS, BUILD.
constexpr std::string_view kSetAndBuild = "ub"sv;

// `cls.__new__(cls)`, an empty dict, MARK. CPython memoises the first two; our writer does not.
bool new_with_dict(Cursor& at) { return at.literal(")\x81\x94}\x94("sv, 2) || at.literal(")\x81}("sv); }

constexpr std::array<std::string_view, 10> kFieldNames = {
    "offsets", "sizes", "properties", "size", "chunks", "fqn", "index", "offset", "relative_path", "length"};

}  // namespace

// A field name or class, fetched from the memo. Its number is compared with the one it had last time.
bool DcpReducer::word(const Graph& graph, Cursor& at, Word which) {
  std::uint64_t number = 0;
  if (!at.fetch(number)) return false;
  if (number == words_[which]) return true;
  const Ref value = at.recall(number);
  bool same = false;
  if (which < kSizeClass) {
    same = value.kind() == Kind::kString && graph.text(value) == kFieldNames[which];
  } else if (value.kind() == Kind::kGlobal) {
    const Class found = class_of(graph.module(value), graph.name(value));
    same = found == (which == kSizeClass ? kSize : which == kChunkClass ? kChunk : kProperties);
  }
  if (same) words_[which] = number;
  return same;
}

// Reads a recurring stretch: as bytes if it is the one seen last, else with `read`.
template <class Read> bool DcpReducer::stretch(std::size_t which, Cursor& at, Read&& read) {
  if (at.match(stretches_[which])) return true;
  const std::byte* const start = at.place();
  const std::uint64_t memo_count = at.memo_count();
  if (!read()) return false;
  at.learn(stretches_[which], start, memo_count);
  return true;
}

// The dimensions of a torch.Size((a, b, ...)), behind its class.
bool DcpReducer::dims(Cursor& at, std::uint32_t& made, std::size_t& rank, bool& marked) {
  std::array<std::int64_t, 16> values{};
  marked = at.literal("("sv);
  rank = 0;
  while (rank < values.size() && at.integer(values[rank])) {
    if (values[rank] < 0) return false;
    ++rank;
  }
  if (marked ? rank < 4 : rank > 3) return false;
  made = checked_dims(values.data(), rank);
  rank = std::min(rank, kRanks - 1);
  return true;
}

// What ends it: the inner tuple, the argument tuple and the call, each memoised or none.
bool DcpReducer::size_end(Cursor& at, std::size_t rank, bool marked) {
  static constexpr std::array<std::string_view, kRanks> kMemoized = {
      ")\x85\x94R\x94"sv, "\x85\x94\x85\x94R\x94"sv, "\x86\x94\x85\x94R\x94"sv, "\x87\x94\x85\x94R\x94"sv,
      "t\x94\x85\x94R\x94"sv};
  static constexpr std::array<std::string_view, kRanks> kPlain = {")\x85R"sv, "\x85\x85R"sv, "\x86\x85R"sv,
                                                                  "\x87\x85R"sv, "t\x85R"sv};
  const std::size_t form = marked ? kRanks - 1 : rank;
  return at.literal(kMemoized[form], rank == 0 ? 2 : 3) || at.literal(kPlain[form]);
}

// A ChunkStorageMetadata, behind its class; the chunk goes to the end of chunks_.
bool DcpReducer::chunk(const Graph& graph, Cursor& at) {
  Chunk made{};
  std::size_t rank = 0;
  bool marked = false;
  if (!stretch(
          kChunkHead, at,
          [&] { return new_with_dict(at) && word(graph, at, kOffsets) && word(graph, at, kSizeClass); }) ||
      !dims(at, made.offsets, rank, marked) ||
      !stretch(kChunkMiddle + rank, at,
               [&] {
                 return size_end(at, rank, marked) && word(graph, at, kSizes) && word(graph, at, kSizeClass);
               }) ||
      !dims(at, made.sizes, rank, marked) || !stretch(kChunkEnd + rank, at, [&] {
        return size_end(at, rank, marked) && at.literal(kSetAndBuild);
      })) {
    return false;
  }
  chunks_.push_back(made);
  return true;
}

// What fills a list of chunks: one APPEND, or batches of APPENDS.
bool DcpReducer::chunk_list(const Graph& graph, Cursor& at) {
  while (!at.peek('u')) {
    const bool batch = at.literal("("sv);
    do {
      at.make_room();
      if (!word(graph, at, kChunkClass) || !chunk(graph, at)) return false;
    } while (batch && !at.peek('e'));
    if (!at.literal(batch ? "e"sv : "a"sv)) return false;
  }
  return true;
}

// TensorProperties built from (dtype, layout, requires_grad, memory format, pin_memory), all but the flags
// fetched from the memo.
bool DcpReducer::properties(const Graph& graph, Cursor& at, std::uint64_t& made) {
  std::uint64_t dtype = 0;
  std::uint64_t layout = 0;
  std::uint64_t memory_format = 0;
  bool requires_grad = false;
  bool pin_memory = false;
  const auto flag = [&](bool& value) { return (value = at.literal("\x88"sv)) || at.literal("\x89"sv); };
  if (!word(graph, at, kPropertiesClass) || !(at.literal(")\x81\x94("sv, 1) || at.literal(")\x81("sv)) ||
      !at.fetch(dtype) || !at.fetch(layout) || !flag(requires_grad) || !at.fetch(memory_format) ||
      !flag(pin_memory) || !(at.literal("t\x94\x62"sv, 1) || at.literal("tb"sv))) {
    return false;
  }
  made = add_properties(make_properties(graph, at.recall(dtype), at.recall(layout), requires_grad,
                                        at.recall(memory_format), pin_memory));
  return true;
}

// A TensorStorageMetadata from behind its class to the class of its size.
bool DcpReducer::tensor_head(const Graph& graph, Cursor& at, std::uint64_t& made) {
  for (const TensorHead& head : tensor_heads_) {
    if (!at.match(head.pattern)) continue;
    made = head.properties;
    return true;
  }
  const std::byte* const start = at.place();
  const std::uint64_t memo_count = at.memo_count();
  if (!new_with_dict(at) || !word(graph, at, kPropertiesWord) || !properties(graph, at, made) ||
      !word(graph, at, kSizeWord) || !word(graph, at, kSizeClass)) {
    return false;
  }
  if (tensor_heads_.size() == kTensorHeads) tensor_heads_.pop_back();
  TensorHead& head = *tensor_heads_.emplace(tensor_heads_.begin());
  at.learn(head.pattern, start, memo_count);
  head.properties = made;
  return true;
}

bool DcpReducer::tensor(const Graph& graph, Cursor& at, Ref& made) {
  const std::size_t first = chunks_.size();
  std::uint64_t kind = 0;
  std::uint32_t size = 0;
  std::size_t rank = 0;
  bool marked = false;
  const bool whole = tensor_head(graph, at, kind) && dims(at, size, rank, marked) &&
                     stretch(kTensorMiddle + rank, at,
                             [&] {
                               return size_end(at, rank, marked) && word(graph, at, kChunks) &&
                                      (at.literal("]\x94"sv, 1) || at.literal("]"sv));
                             }) &&
                     chunk_list(graph, at) && at.literal(kSetAndBuild);
  if (whole) {
    made = add_tensor(kind, size, first, chunks_.size() - first);
  } else {
    chunks_.truncate(first);
  }
  return whole;
}

bool DcpReducer::index(const Graph& graph, Cursor& at, Ref& made) {
  std::string_view fqn;
  if (!stretch(kIndexHead, at, [&] { return new_with_dict(at) && word(graph, at, kFqn); }) ||
      !at.string(graph, fqn) || fqn.size() > limits_.name_bytes) {
    return false;
  }
  if (rows.names.size() == 0) rows.names.reserve(tensors_.size() + 1);  // most often each has its items
  const std::uint32_t name = rows.names.intern(fqn);                    // before the view goes
  std::int64_t hint = -1;
  std::uint32_t offsets = StorageRows::kNoOffset;
  if (!stretch(kIndexHint, at, [&] { return word(graph, at, kIndexWord); }) ||
      !(at.integer(hint) || at.literal("N"sv))) {
    return false;
  }
  if (at.peek('u')) {
    if (!at.literal(kSetAndBuild)) return false;
  } else {
    std::size_t rank = 0;
    bool marked = false;
    if (!stretch(kIndexOffset, at, [&] { return word(graph, at, kOffset) && word(graph, at, kSizeClass); }) ||
        !dims(at, offsets, rank, marked) || !stretch(kIndexEnd + rank, at, [&] {
          return size_end(at, rank, marked) && at.literal(kSetAndBuild);
        })) {
      return false;
    }
  }
  made = add_key(name, offsets, hint);
  return true;
}

bool DcpReducer::info(const Graph& graph, Cursor& at, Ref& made) {
  std::string_view path;
  if (!stretch(kInfoHead, at, [&] { return new_with_dict(at) && word(graph, at, kRelativePath); }) ||
      !at.string(graph, path)) {
    return false;
  }
  if (last_file_ >= rows.files.size() || rows.files[last_file_] != path) {
    const std::optional<std::uint32_t> file = rows.file_numbers.find(path);
    if (!file) return false;  // the machine checks a new name
    last_file_ = *file;
  }
  std::int64_t offset = 0;
  std::int64_t length = 0;
  if (!stretch(kInfoOffset, at, [&] { return word(graph, at, kOffset); }) || !at.integer(offset) ||
      !stretch(kInfoLength, at, [&] { return word(graph, at, kLength); }) || !at.integer(length) ||
      !at.literal(kSetAndBuild)) {
    return false;
  }
  made = add_place(last_file_, offset, length, 0);
  return true;
}

bool DcpReducer::recognize(const Graph& graph, std::uint32_t class_id, Cursor& at, Ref& made) {
  switch (class_id) {
    case kChunk:
      if (!chunk(graph, at)) return false;
      made = handle(kChunkHandle, chunks_.size() - 1);
      return true;
    case kTensor: return tensor(graph, at, made);
    case kIndex: return index(graph, at, made);
    case kInfo: return info(graph, at, made);
    default: return false;
  }
}

}  // namespace cairn
