// Checkpoints whose ranks each wrote metadata of their own (torch's use_collectives=False).
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "engine/dcp_checkpoint.h"

namespace cairn {
namespace {

class Merge {
 public:
  explicit Merge(Metadata first) : all_(std::move(first)) {
    Metadata rest;
    std::swap(rest.state_dict_metadata, all_.state_dict_metadata);
    std::swap(rest.storage_data, all_.storage_data);
    std::swap(rest.planner_data, all_.planner_data);
    if (std::holds_alternative<PathMap>(rest.planner_data)) all_.planner_data = PathMap();
    add(std::move(rest));
  }

  void add(Metadata rank) {
    for (auto& [name, entry] : rank.state_dict_metadata) add_entry(name, std::move(entry));
    add_paths(rank);
    const StorageData& storage = rank.storage_data;
    for (std::size_t i = 0; i < storage.size(); ++i) {
      MetadataIndex index = storage.index(i);
      index.index.reset();  // the chunk's position among the rank's own means nothing here
      if (places_.insert(index).second) all_.storage_data.add(index, storage.info(i));
    }
    if (all_.foreign_storage_data.is<None>())
      all_.foreign_storage_data = std::move(rank.foreign_storage_data);
  }

  Metadata take() { return std::move(all_); }

 private:
  void add_entry(const std::string& name, StorageMetadata entry) {
    const auto [known, fresh] = positions_.emplace(name, all_.state_dict_metadata.size());
    if (fresh) all_.state_dict_metadata.emplace_back(name, empty_like(entry));
    StorageMetadata& have = all_.state_dict_metadata[known->second].second;
    if (have.index() != entry.index()) fail(name, "a tensor on one rank and an object on another");
    auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
    if (tensor != nullptr) add_chunks(name, std::get<TensorStorageMetadata>(have), std::move(*tensor));
  }

  // The entry without its chunks, which are added one by one.
  static StorageMetadata empty_like(const StorageMetadata& entry) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
    if (tensor == nullptr) return entry;
    return TensorStorageMetadata{tensor->properties, tensor->size, {}, tensor->extra, {}};
  }

  void add_chunks(const std::string& name, TensorStorageMetadata& have, TensorStorageMetadata more) {
    if (have.size != more.size || have.properties.dtype != more.properties.dtype) {
      fail(name, fmt::format("{} {} on one rank and {} {} on another", name_of(have.properties.dtype),
                             to_string(have.size), name_of(more.properties.dtype), to_string(more.size)));
    }
    auto extra = more.chunk_extra.begin();  // in order of position
    for (std::size_t i = 0; i < more.chunks.size(); ++i) {
      while (extra != more.chunk_extra.end() && extra->first < i) ++extra;
      if (!chunks_.insert({name, more.chunks[i].offsets, std::nullopt}).second) continue;
      if (extra != more.chunk_extra.end() && extra->first == i) {
        have.chunk_extra.emplace_back(have.chunks.size(), std::move(extra->second));
      }
      have.chunks.push_back(std::move(more.chunks[i]));
    }
  }

  void add_paths(const Metadata& rank) {
    const auto* paths = std::get_if<PathMap>(&rank.planner_data);
    auto* all = std::get_if<PathMap>(&all_.planner_data);
    if (paths == nullptr || all == nullptr) return;
    for (std::size_t i = 0; i < paths->size(); ++i) {
      const std::string name(paths->fqn(i));
      if (paths_.insert(name).second) all->add(name, paths->path(i));
    }
  }

  [[noreturn]] static void fail(const std::string& name, const std::string& what) {
    throw Error(ErrorCode::kCorrupt, "the ranks' own metadata disagree: " + what).of_tensor(name);
  }

  Metadata all_;
  MapByName<std::string, std::size_t> positions_;
  std::unordered_set<MetadataIndex> chunks_;
  std::unordered_set<MetadataIndex> places_;
  SetOfNames<std::string> paths_;
};

}  // namespace

Metadata merge_rank_local(std::vector<Metadata> ranks) {
  Merge merge(std::move(ranks.front()));
  for (std::size_t i = 1; i < ranks.size(); ++i) merge.add(std::move(ranks[i]));
  return merge.take();
}

}  // namespace cairn
