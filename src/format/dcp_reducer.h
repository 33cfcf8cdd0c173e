// Turns the objects of a .metadata pickle into rows and boxes while it is being read.
//
// A checkpoint of two million chunks pickles ten million small objects. Each becomes a few numbers in a
// table here, either when its BUILD is reached or, in the form CPython writes, straight from the program.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/pod_vector.h"
#include "cairn/error.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "format/pickle.h"
#include "format/pickle_cursor.h"
#include "format/storage_table.h"

namespace cairn {

[[noreturn]] inline void broken_metadata(std::string message) {
  throw Error(ErrorCode::kCorrupt, std::move(message));
}

class DcpReducer final : public pickle::Reducer {
 public:
  enum Class : std::uint32_t {
    kOther,
    kSize,
    kChunk,
    kProperties,
    kMemoryFormat,
    kLayout,
    kTensor,
    kBytes,
    kIndex,
    kInfo,
    kStorageMeta,
    kMetadata,
    kPath,
  };
  enum Handle : std::uint32_t {
    kSizeHandle,
    kPropertiesHandle,
    kChunkHandle,
    kTensorHandle,
    kIndexHandle,
    kInfoHandle
  };

  // A node of a std::map from positions to dicts; more than an element of a growing list of such pairs.
  static constexpr std::uint64_t kExtraNode = block_bytes(48);

  // All that is collected comes out of the budget. `program_bytes` bounds how often chunks are visited.
  DcpReducer(Budget& budget, const Limits& limits, std::uint64_t program_bytes)
      : budget_(budget), limits_(limits), chunk_budget_(1024 + program_bytes / 4) {}

  // Which DCP class a name is, whatever module it lived in over the years.
  static Class class_of(std::string_view module, std::string_view name);

  std::uint32_t class_id(std::string_view module, std::string_view name) override;
  bool called(const pickle::Graph& graph, std::uint32_t class_id, pickle::Ref args,
              pickle::Ref& made) override;
  bool built(const pickle::Graph& graph, std::uint32_t class_id, pickle::Ref args, pickle::Ref state,
             pickle::Ref& made) override;
  bool recognize(const pickle::Graph& graph, std::uint32_t class_id, pickle::Cursor& at,
                 pickle::Ref& made) override;

  // What was collected: handles of kIndexHandle and kInfoHandle number the rows' keys and places, those of
  // kTensorHandle are for make_tensor, which several threads may call once the pickle is read.
  TensorStorageMetadata make_tensor(std::uint64_t handle) const;
  std::uint64_t memory_of(std::uint64_t handle) const;  // of what make_tensor makes
  StorageRows rows;
  std::string written_as;  // the package the classes came from

  // Reads one object that is still an object, or a handle: whatever the pickle's sharing left it as.
  pickle::Ref index_handle(const pickle::Graph& graph, pickle::Ref ref);
  pickle::Ref info_handle(const pickle::Graph& graph, pickle::Ref ref);
  pickle::Ref tensor_handle(const pickle::Graph& graph, pickle::Ref ref);
  std::uint32_t size_of(const pickle::Graph& graph, pickle::Ref ref);  // in rows.dims
  Value plain_value(const pickle::Graph& graph, pickle::Ref ref);
  Dict extra_of(const pickle::Graph& graph, pickle::Ref state, std::initializer_list<std::string_view> known);

 private:
  struct Chunk {
    std::uint32_t offsets, sizes;  // in rows.dims
  };
  struct TensorRow {
    std::uint32_t properties, size;     // in properties_, in rows.dims
    std::uint64_t first_chunk, chunks;  // in chunks_
  };
  // Words that recur in the program: field names and classes, known by their memo number once seen.
  enum Word {
    kOffsets,
    kSizes,
    kPropertiesWord,
    kSizeWord,
    kChunks,
    kFqn,
    kIndexWord,
    kOffset,
    kRelativePath,
    kLength,
    kSizeClass,
    kChunkClass,
    kPropertiesClass,
    kWords,
  };

  // Stretches of program that are the same in every object but for the first: once read word by word,
  // then compared as bytes. The variants by rank follow each other.
  static constexpr std::size_t kRanks = 5;        // 0, 1, 2, 3, more
  static constexpr std::size_t kTensorHeads = 8;  // one for each kind of tensor properties, newest first
  enum Stretch : std::size_t {
    kChunkHead,
    kChunkMiddle,
    kChunkEnd = kChunkMiddle + kRanks,
    kTensorMiddle = kChunkEnd + kRanks,
    kIndexHead = kTensorMiddle + kRanks,
    kIndexHint,
    kIndexOffset,
    kIndexEnd,
    kInfoHead = kIndexEnd + kRanks,
    kInfoOffset,
    kInfoLength,
    kStretches,
  };
  struct TensorHead {
    pickle::Pattern pattern;
    std::uint64_t properties = 0;
  };

  template <class Read> bool stretch(std::size_t which, pickle::Cursor& at, Read&& read);
  bool word(const pickle::Graph& graph, pickle::Cursor& at, Word which);
  static bool size_end(pickle::Cursor& at, std::size_t rank, bool marked);
  bool dims(pickle::Cursor& at, std::uint32_t& dims, std::size_t& rank, bool& marked);
  bool chunk(const pickle::Graph& graph, pickle::Cursor& at);
  bool chunk_list(const pickle::Graph& graph, pickle::Cursor& at);
  bool properties(const pickle::Graph& graph, pickle::Cursor& at, std::uint64_t& index);
  bool tensor_head(const pickle::Graph& graph, pickle::Cursor& at, std::uint64_t& properties);
  bool tensor(const pickle::Graph& graph, pickle::Cursor& at, pickle::Ref& made);
  bool index(const pickle::Graph& graph, pickle::Cursor& at, pickle::Ref& made);
  bool info(const pickle::Graph& graph, pickle::Cursor& at, pickle::Ref& made);

  pickle::Ref add_tensor(std::uint64_t properties, std::uint32_t size, std::uint64_t first_chunk,
                         std::uint64_t chunks);
  pickle::Ref add_key(std::uint32_t name, std::uint32_t dims, std::int64_t hint);
  pickle::Ref add_place(std::uint32_t file, std::int64_t offset, std::int64_t length,
                        std::uint32_t transforms);
  std::uint64_t properties_of(const pickle::Graph& graph, pickle::Ref ref);
  std::uint64_t add_properties(TensorProperties properties);
  static TensorProperties make_properties(const pickle::Graph& graph, pickle::Ref dtype, pickle::Ref layout,
                                          bool requires_grad, pickle::Ref memory_format, bool pin_memory);
  std::uint64_t chunk_of(const pickle::Graph& graph, pickle::Ref ref);
  void copy_chunks(const PodVector<std::uint64_t>& which);
  pickle::Ref build_tensor(const pickle::Graph& graph, pickle::Ref state);
  pickle::Ref build_index(const pickle::Graph& graph, pickle::Ref state);
  pickle::Ref build_info(const pickle::Graph& graph, pickle::Ref state);
  std::uint64_t build_chunk(const pickle::Graph& graph, pickle::Ref state);
  std::uint32_t checked_dims(const std::int64_t* dims, std::size_t rank);

  Budget& budget_;
  const Limits& limits_;
  std::uint64_t chunk_budget_;  // how many more chunks tensors may have
  PodVector<Chunk> chunks_;
  PodVector<TensorRow> tensors_;
  std::map<std::uint64_t, Dict> chunk_extra_, tensor_extra_;  // unknown attributes, by position
  std::vector<TensorProperties> properties_;
  std::array<std::uint64_t, kWords> words_ = all_unknown();
  std::array<pickle::Pattern, kStretches> stretches_;
  std::vector<TensorHead> tensor_heads_;
  std::uint32_t last_file_ = 0;

  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  static constexpr std::array<std::uint64_t, kWords> all_unknown() {
    std::array<std::uint64_t, kWords> all{};
    for (auto& w : all) w = kUnknown;
    return all;
  }
};

}  // namespace cairn
