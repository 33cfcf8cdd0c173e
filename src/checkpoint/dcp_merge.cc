// Checkpoints whose ranks each wrote metadata of their own (torch's use_collectives=False).
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "checkpoint/dcp_checkpoint.h"

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

  // What the first rank has of a tensor, where the chunks of the others do not lie beside it.
  void drop_overlaps(const std::vector<std::size_t>& first_chunks) {
    for (std::size_t i = 0; i < first_chunks.size(); ++i) {
      auto* tensor = std::get_if<TensorStorageMetadata>(&all_.state_dict_metadata[i].second);
      if (tensor == nullptr || tensor->chunks.size() == first_chunks[i]) continue;
      const auto problem = find_cover_problem(tensor->size, tensor->chunks);
      if (!problem || problem->kind != CoverProblem::Kind::kOverlap) continue;
      tensor->chunks.resize(first_chunks[i]);
      std::erase_if(tensor->chunk_extra, [&](const auto& extra) { return extra.first >= first_chunks[i]; });
    }
  }

  // How many chunks each entry has so far.
  std::vector<std::size_t> chunk_counts() const {
    std::vector<std::size_t> counts;
    for (const auto& [name, entry] : all_.state_dict_metadata) {
      const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
      counts.push_back(tensor == nullptr ? 0 : tensor->chunks.size());
    }
    return counts;
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

bool agree(const StorageMetadata& a, const StorageMetadata& b) {
  if (a.index() != b.index()) return false;
  const auto* one = std::get_if<TensorStorageMetadata>(&a);
  if (one == nullptr) return true;
  const auto& other = std::get<TensorStorageMetadata>(b);
  return one->size == other.size && one->properties.dtype == other.properties.dtype;
}

// The metadata without the entries of these names.
Metadata without(Metadata metadata, const SetOfNames<std::string>& names) {
  if (names.empty()) return metadata;
  std::erase_if(metadata.state_dict_metadata, [&](const auto& entry) { return names.contains(entry.first); });
  StorageData places;
  for (std::size_t i = 0; i < metadata.storage_data.size(); ++i)
    if (!names.contains(std::string(metadata.storage_data.fqn(i))))
      places.add(metadata.storage_data.index(i), metadata.storage_data.info(i));
  metadata.storage_data = std::move(places);
  if (const auto* paths = std::get_if<PathMap>(&metadata.planner_data)) {
    PathMap rest;
    for (std::size_t i = 0; i < paths->size(); ++i)
      if (!names.contains(std::string(paths->fqn(i)))) rest.add(std::string(paths->fqn(i)), paths->path(i));
    metadata.planner_data = std::move(rest);
  }
  return metadata;
}

// Of each rank but the first, the names that contradict the first's, or others' where the first has none.
std::vector<SetOfNames<std::string>> contradictions(const std::vector<Metadata>& ranks) {
  MapByName<std::string, const StorageMetadata*> known;
  for (const auto& [name, entry] : ranks.front().state_dict_metadata) known.emplace(name, &entry);
  MapByName<std::string, const StorageMetadata*> others;
  SetOfNames<std::string> disputed;
  std::vector<SetOfNames<std::string>> found(ranks.size());
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    for (const auto& [name, entry] : ranks[i].state_dict_metadata) {
      const auto mine = known.find(name);
      if (mine != known.end()) {
        if (!agree(*mine->second, entry)) found[i].insert(name);
      } else if (!agree(*others.emplace(name, &entry).first->second, entry)) {
        disputed.insert(name);
      }
    }
  }
  for (SetOfNames<std::string>& names : found) names.insert(disputed.begin(), disputed.end());
  return found;
}

}  // namespace

Metadata merge_for_rank(std::vector<Metadata> ranks, std::size_t own) {
  std::rotate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(own),
              ranks.begin() + static_cast<std::ptrdiff_t>(own) + 1);
  const std::vector<SetOfNames<std::string>> left_out = contradictions(ranks);
  Merge merge(std::move(ranks.front()));
  const std::vector<std::size_t> own_chunks = merge.chunk_counts();
  for (std::size_t i = 1; i < ranks.size(); ++i) merge.add(without(std::move(ranks[i]), left_out[i]));
  merge.drop_overlaps(own_chunks);
  return merge.take();
}

Metadata merge_rank_local(std::vector<Metadata> ranks) {
  Merge merge(std::move(ranks.front()));
  for (std::size_t i = 1; i < ranks.size(); ++i) merge.add(std::move(ranks[i]));
  return merge.take();
}

}  // namespace cairn
