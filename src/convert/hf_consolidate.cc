// Consolidation: a conversion of a directory of shards to one of whole tensors, shared by ranks.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "cairn/convert.h"
#include "cairn/error.h"
#include "cairn/group.h"
#include "cairn/hugging_face.h"
#include "format/hf_names.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"
#include "group/steps.h"

namespace cairn {
namespace {

// A name as a pattern that matches nothing else.
std::string escaped(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (c == '*' || c == '?' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void require_shards(const Checkpoint& checkpoint, const std::string& path) {
  const auto files = file_system_of(path, {.follow_links = true});
  for (const FileSummary& file : checkpoint.files()) {
    if (!file.referenced || !file.name.ends_with(kSafetensorsEnding)) continue;
    const SafetensorsHeader header = read_safetensors_header(*files->open(file.name));
    const bool noted = std::any_of(header.metadata.begin(), header.metadata.end(),
                                   [](const auto& pair) { return pair.first == kShardingInfoKey; });
    if (noted) continue;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("No DCP custom metadata found in safetensors file ({}). The file must be saved with "
                    "DCP to be consolidated.",
                    kShardingInfoKey))
        .in_file(path + "/" + file.name);
  }
}

class Consolidation {
 public:
  Consolidation(const std::string& source, const std::string& destination, const ConsolidateOptions& options)
      : source_(source), destination_(destination), options_(options) {}

  void run(Group& group) {
    Steps steps(group, 0, Steps::deadline_after(options_.deadline));
    std::vector<int> mine;
    steps.all_gather("consolidate", [&] {
      const auto checkpoint = Checkpoint::open(source_);
      require_shards(*checkpoint, source_);
      choose(*checkpoint);
      mine = share_of(*checkpoint, steps.rank(), steps.size());
      return std::string();
    });
    if (steps.size() == 1) {
      steps.broadcast("consolidate", [&] { return write(std::nullopt, true); });
      return;
    }
    try {
      steps.all_gather("consolidate", [&] { return mine.empty() ? "" : write(mine, false); });
      steps.broadcast("consolidate", [&] { return write(std::vector<int>(), true); });
    } catch (...) {
      remove(mine);
      throw;
    }
  }

 private:
  // Every tensor of the mapping is there; what else is there is left out.
  void choose(const Checkpoint& checkpoint) {
    convert_.to = Format::kHuggingFace;
    convert_.file_of = options_.file_of;
    convert_.overwrite = true;
    convert_.threads = options_.threads;
    convert_.memory_budget = options_.memory_budget;
    convert_.durable = options_.durable;
    convert_.progress = options_.progress;
    std::set<std::string_view> there;
    for (const TensorSummary& tensor : checkpoint.tensors()) {
      there.insert(tensor.name);
      if (options_.file_of.empty()) {
        convert_.file_of[std::string(tensor.name)] = 1;
      } else if (!options_.file_of.contains(std::string(tensor.name))) {
        convert_.exclude.push_back(escaped(tensor.name));
      }
    }
    for (const auto& [name, file] : options_.file_of) {
      if (there.contains(name)) continue;
      throw Error(ErrorCode::kNotFound, "the mapping has a file for this tensor, and no shard has the tensor")
          .of_tensor(name)
          .in_file(source_);
    }
  }

  // Files go to the rank with the least so far, the largest first. The same on all ranks.
  std::vector<int> share_of(const Checkpoint& checkpoint, int rank, int ranks) const {
    std::map<int, std::uint64_t> sizes;
    for (const TensorSummary& tensor : checkpoint.tensors()) {
      const auto file = convert_.file_of.find(std::string(tensor.name));
      if (file != convert_.file_of.end()) sizes[file->second] += tensor.bytes;
    }
    std::vector<std::pair<std::uint64_t, int>> files;
    for (const auto& [file, bytes] : sizes) files.emplace_back(bytes, file);
    std::stable_sort(files.begin(), files.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::uint64_t> loads(static_cast<std::size_t>(ranks), 0);
    std::vector<int> share;
    for (const auto& [bytes, file] : files) {
      const auto lightest = std::min_element(loads.begin(), loads.end());
      *lightest += bytes + 1;
      if (lightest - loads.begin() == rank) share.push_back(file);
    }
    return share;
  }

  std::string write(std::optional<std::vector<int>> files, bool index) const {
    ConvertOptions options = convert_;
    options.only_files = std::move(files);
    options.index = index;
    (void)convert(source_, destination_, options);
    return {};
  }

  // After a failure elsewhere: files without an index would be taken for a model.
  void remove(const std::vector<int>& files) const noexcept {
    try {
      int largest = 1;
      for (const auto& [name, file] : convert_.file_of) largest = std::max(largest, file);
      const auto there = file_system_of(destination_);
      std::vector<std::string> names;
      for (const int file : files) names.push_back(hf_file_name(file, largest));
      there->remove_all(names);
    } catch (...) {
      // What failed elsewhere is told all the same.
    }
  }

  const std::string& source_;
  const std::string& destination_;
  const ConsolidateOptions& options_;
  ConvertOptions convert_;
};

}  // namespace

void consolidate(const std::string& sharded, const std::string& destination,
                 const ConsolidateOptions& options) {
  const std::unique_ptr<Group> solo = options.group == nullptr ? solo_group() : nullptr;
  try {
    Consolidation(sharded, destination, options).run(solo ? *solo : *options.group);
  } catch (const CheckpointError& e) {
    // Alone, the failure itself says more than that a step has failed.
    if (!solo || e.failures().size() != 1) throw;
    throw Error(e.failures().begin()->second);
  }
}

}  // namespace cairn
