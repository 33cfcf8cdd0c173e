#include "save/coverage.h"

#include <fmt/format.h>

#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

[[noreturn]] void fail(std::string_view fqn, std::string text) {
  throw Error(ErrorCode::kInternal, std::move(text)).of_tensor(fqn);
}

// Marks off what was written: one flag per chunk, or one per object.
class Checklist {
 public:
  explicit Checklist(const Metadata& metadata) {
    for (const auto& [fqn, stored] : metadata.state_dict_metadata) {
      const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
      entries_.emplace(fqn, Entry{tensor, std::vector<bool>(tensor == nullptr ? 1 : tensor->chunks.size())});
    }
  }

  void mark(const MetadataIndex& index) {
    const auto found = entries_.find(index.fqn);
    if (found == entries_.end()) fail(index.fqn, "it was written, and nobody planned to");
    const std::size_t chunk = chunk_of(found->second, index);
    if (found->second.written[chunk]) fail(index.fqn, fmt::format("chunk {} was written twice", chunk));
    found->second.written[chunk] = true;
  }

  void require_complete() const {
    for (const auto& [fqn, entry] : entries_) {
      for (std::size_t i = 0; i < entry.written.size(); ++i) {
        if (!entry.written[i])
          fail(fqn, entry.tensor == nullptr
                        ? "the object was not written"
                        : "chunk " + to_string(entry.tensor->chunks[i]) + " was not written");
      }
    }
  }

 private:
  struct Entry {
    const TensorStorageMetadata* tensor;
    std::vector<bool> written;
  };

  static std::size_t chunk_of(const Entry& entry, const MetadataIndex& index) {
    if (entry.tensor == nullptr) {
      if (index.offset) fail(index.fqn, "it was planned as an object and written as a tensor");
      return 0;
    }
    if (!index.offset) fail(index.fqn, "it was planned as a tensor and written as an object");
    const std::vector<Box>& chunks = entry.tensor->chunks;
    const auto hint = static_cast<std::uint64_t>(index.index.value_or(-1));
    if (hint < chunks.size() && chunks[hint].offsets == *index.offset) return hint;
    for (std::size_t i = 0; i < chunks.size(); ++i)
      if (chunks[i].offsets == *index.offset) return i;
    fail(index.fqn,
         fmt::format("a chunk at {} was written, and nobody planned to", to_string(*index.offset)));
  }

  MapByName<std::string_view, Entry> entries_;
};

}  // namespace

void require_covered(const Metadata& metadata, const std::vector<WrittenData>& all) {
  Checklist list(metadata);
  for (const WrittenData& rank : all)
    for (const WriteResult& result : rank.results) list.mark(result.index);
  list.require_complete();
}

}  // namespace cairn
