#include "load/hf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/name_table.h"
#include "base/seeded_hash.h"
#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "format/hf_names.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

// The beginning of a file of which the rest is not here.
class FrontOfFile final : public ByteSource {
 public:
  FrontOfFile(ByteSpan front, std::uint64_t size, std::string name)
      : front_(front), size_(size), name_(std::move(name)) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > front_.size() || to.size() > front_.size() - offset)
      throw Error(ErrorCode::kCorrupt, "the header is longer than what was sent of it").at(offset);
    std::memcpy(to.data(), front_.data() + offset, to.size());
  }

 private:
  ByteSpan front_;
  std::uint64_t size_;
  std::string name_;
};

// Length and header, as they stand in the file. Whether they are sound is for read_safetensors_header to say;
// here only a sensible amount is read.
std::string front_of(const ByteSource& source, const Limits& limits) {
  std::string front(std::min(source.size(), kLengthBytes), '\0');
  source.read_at(0, std::as_writable_bytes(std::span(front)));
  if (front.size() < kLengthBytes) return front;
  const auto length = load<std::uint64_t>(front.data());
  if (length > limits.safetensors_header_bytes || length > source.size() - kLengthBytes) return front;
  front.resize(kLengthBytes + length);
  source.read_at(kLengthBytes, std::as_writable_bytes(std::span(front)).subspan(kLengthBytes));
  return front;
}

struct Chosen {
  std::vector<std::string> names;
  SafetensorsIndex index;
};

Chosen choose_files(const FileSystem& files, const Limits& limits) {
  Chosen chosen;
  std::vector<std::string> all, shards;
  bool has_index = false;
  for (const FileEntry& file : files.list()) {
    if (file.name == kIndexFile) has_index = true;
    if (!file.name.ends_with(kSafetensorsEnding)) continue;
    all.push_back(file.name);
    if (is_hf_shard(file.name)) shards.push_back(file.name);
  }
  if (has_index) {
    const auto source = files.open(kIndexFile);
    try {
      chosen.index = read_safetensors_index(*source, limits);
    } catch (Error& e) {
      e.in_file(source->name());
      throw;
    }
    for (const auto& [tensor, file] : chosen.index.weight_map) chosen.names.push_back(file);
    std::sort(chosen.names.begin(), chosen.names.end());
    chosen.names.erase(std::unique(chosen.names.begin(), chosen.names.end()), chosen.names.end());
  }
  if (chosen.names.empty()) chosen.names = shards.empty() ? std::move(all) : std::move(shards);
  if (chosen.names.empty())
    throw Error(ErrorCode::kNotFound, "there are no safetensors files here").in_file(files.root());
  return chosen;
}

// Gathers the tensors of all files.
class Building {
 public:
  Building(const std::string& root, const Limits& limits) : root_(root), limits_(limits) {}

  void add_file(const std::string& name, const ByteSource& source) {
    try {
      const SafetensorsHeader header = read_safetensors_header(source, limits_);
      MapByName<std::string, Shape> sharding;
      for (const auto& [key, text] : header.metadata)
        if (key == kShardingInfoKey) sharding = parse_sharding_info(text, limits_);
      for (const SafetensorsEntry& entry : header.tensors) {
        const auto offsets = sharding.find(entry.name);
        const bool sharded = offsets != sharding.end();
        add(name, entry, sharded ? offsets->second : Shape(entry.shape.rank(), 0), sharded);
      }
    } catch (Error& e) {
      e.in_file(root_ + "/" + name);
      throw;
    }
  }

  // Every tensor is where the index says it is.
  void check(const SafetensorsIndex& index) const {
    for (const auto& [tensor, file] : index.weight_map) {
      if (names_.find(tensor)) continue;
      throw Error(ErrorCode::kCorrupt,
                  "the index says that the tensor is in this file, which does not have it")
          .of_tensor(tensor)
          .in_file(root_ + "/" + file);
    }
  }

  Metadata take() {
    for (const auto& [name, entry] : metadata_.state_dict_metadata)
      require_disjoint(name, std::get<TensorStorageMetadata>(entry));
    return std::move(metadata_);
  }

 private:
  void add(const std::string& file, const SafetensorsEntry& entry, const Shape& offsets, bool sharded) {
    try {
      if (offsets.rank() != entry.shape.rank()) {
        throw Error(ErrorCode::kCorrupt, fmt::format("{} says {} of a tensor of shape {}", kShardingInfoKey,
                                                     to_string(offsets), to_string(entry.shape)));
      }
      add_chunk(file, entry, offsets, sharded);
    } catch (Error& e) {
      e.of_tensor(entry.name);
      throw;
    }
  }

  void add_chunk(const std::string& file, const SafetensorsEntry& entry, const Shape& offsets, bool sharded) {
    auto& entries = metadata_.state_dict_metadata;
    const std::uint32_t position = names_.intern(entry.name);
    if (position == entries.size()) {
      TensorStorageMetadata fresh;
      fresh.properties.dtype = entry.dtype;
      fresh.size = Shape(entry.shape.rank(), 0);
      entries.emplace_back(entry.name, std::move(fresh));
    }
    auto& tensor = std::get<TensorStorageMetadata>(entries[position].second);
    if (!tensor.chunks.empty() && is_repeated(tensor, entry, offsets, sharded)) return;
    // The whole tensor reaches as far as its parts do.
    for (std::size_t d = 0; d < offsets.rank(); ++d)
      tensor.size[d] = std::max(tensor.size[d], checked_add(offsets[d], entry.shape[d]));
    const MetadataIndex index{entry.name, offsets, static_cast<std::int64_t>(tensor.chunks.size())};
    metadata_.storage_data.add(
        index,
        {file, static_cast<std::int64_t>(entry.offset), static_cast<std::int64_t>(entry.bytes), {}, {}});
    tensor.chunks.push_back({offsets, entry.shape});
  }

  // Whether another file has exactly this part. Error(kCorrupt) when the two cannot both be right.
  bool is_repeated(const TensorStorageMetadata& tensor, const SafetensorsEntry& entry, const Shape& offsets,
                   bool sharded) const {
    const StorageData& places = metadata_.storage_data;
    const auto same = places.find(entry.name, &offsets);
    const std::string other =
        places.info(same.value_or(*places.find(entry.name, &tensor.chunks[0].offsets))).relative_path;
    const auto refuse = [&](const char* why) {
      throw Error(ErrorCode::kCorrupt, fmt::format("it is also in '{}', and {}", other, why));
    };
    if (!sharded) refuse("no DCP_SHARDING_INFO says which part each file holds");
    if (tensor.properties.dtype != entry.dtype || tensor.size.rank() != entry.shape.rank())
      refuse("the two differ in element type or rank");
    if (!same) return false;
    const auto chunk = std::find_if(tensor.chunks.begin(), tensor.chunks.end(),
                                    [&](const Box& b) { return b.offsets == offsets; });
    if (chunk->sizes != entry.shape) refuse("the two begin at the same place and differ in size");
    return true;
  }

  // Shards of two saves in one directory: whichever was read last would win.
  void require_disjoint(const std::string& name, const TensorStorageMetadata& tensor) const {
    if (tensor.chunks.size() < 2) return;
    const auto problem = find_cover_problem(tensor.size, tensor.chunks);
    if (!problem || problem->kind != CoverProblem::Kind::kOverlap) return;
    const auto file_of = [&](std::size_t chunk) {
      const StorageData& places = metadata_.storage_data;
      return places.info(*places.find(name, &tensor.chunks[chunk].offsets)).relative_path;
    };
    throw Error(ErrorCode::kCorrupt,
                fmt::format("its part {} here overlaps {} in '{}': are these files of two saves?",
                            to_string(tensor.chunks[problem->first]),
                            to_string(tensor.chunks[problem->second]), file_of(problem->second)))
        .of_tensor(name)
        .in_file(root_ + "/" + file_of(problem->first));
  }

  const std::string& root_;
  const Limits& limits_;
  Metadata metadata_;
  NameTable names_;  // of state_dict_metadata, by position
};

}  // namespace

std::string fetch_hf_description(const FileSystem& files, const Limits& limits) {
  const Chosen chosen = choose_files(files, limits);
  Building building(files.root(), limits);
  std::string bytes;
  put<std::uint64_t>(bytes, chosen.names.size());
  for (const std::string& name : chosen.names) {
    const auto source = files.open(name);
    const std::string front = front_of(*source, limits);
    building.add_file(name, FrontOfFile(as_bytes(front), source->size(), source->name()));
    put<std::uint64_t>(bytes, name.size());
    bytes += name;
    put<std::uint64_t>(bytes, source->size());
    put<std::uint64_t>(bytes, front.size());
    bytes += front;
  }
  building.check(chosen.index);
  return bytes;
}

Metadata read_hf_description(std::string_view bytes, const std::string& root, const Limits& limits) {
  WireReader in(as_bytes(bytes));
  Building building(root, limits);
  for (auto left = in.get<std::uint64_t>(); left > 0; --left) {
    const std::string name(in.text(in.get<std::uint64_t>()));
    check_relative_path(name, limits);
    const auto size = in.get<std::uint64_t>();
    const ByteSpan front = in.take(in.get<std::uint64_t>());
    building.add_file(name, FrontOfFile(front, size, fmt::format("{}/{}", root, name)));
  }
  in.finish();
  return building.take();
}

}  // namespace cairn
