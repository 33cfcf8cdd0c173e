// A StorageReader of Hugging Face directories.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/name_table.h"
#include "base/source.h"
#include "cairn/dequantize.h"
#include "cairn/error.h"
#include "cairn/hugging_face.h"
#include "format/hf_names.h"
#include "load/hf_metadata.h"
#include "load/hf_quantized.h"
#include "reading/read_run.h"
#include "reading/read_work.h"

namespace cairn {
namespace {

void check(const HfReadOptions& options) {
  if (!options.dequantize) return;
  if (!is_dequantized_type(options.dequantize->to))
    throw Error(ErrorCode::kUnsupported, "tensors are dequantised to float32, bfloat16 or float16");
  if (options.dequantize->block < 1)
    throw Error(ErrorCode::kInvalidArgument, "a block of scaled elements has at least one");
}

class HfReader final : public StorageReader {
 public:
  HfReader(std::shared_ptr<const FileSystem> files, const HfReadOptions& options)
      : files_(std::move(files)), options_(options) {
    if (files_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "a reader needs a file system");
    check(options);
  }

  std::string fetch_description() override {
    versions_ = versions();
    return fetch_hf_description(*files_, options_.read.limits);
  }

  const Metadata& set_up_storage_reader(std::string description, const ReaderRole& role) override {
    role_ = role;
    if (!role.is_coordinator) versions_.clear();
    described_ = xxh3_128(as_bytes(description));
    stored_ = read_hf_description(description, files_->root(), options_.read.limits);
    names_ = NameTable();
    names_.reserve(stored_.state_dict_metadata.size());
    for (const auto& [name, entry] : stored_.state_dict_metadata) names_.intern(name);
    if (!options_.dequantize) return stored_;
    quantized_ = find_quantized(stored_, names_);
    shown_ = dequantized_view(stored_, quantized_, options_.dequantize->to);
    return shown_;
  }

  void read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) override {
    LoadPlan plain;
    std::vector<const ReadItem*> quantized;
    for (const ReadItem& item : plan.items) {
      const auto position = names_.find(item.storage_index.fqn);
      if (position && quantized_.contains(*position)) {
        quantized.push_back(&item);
      } else {
        plain.items.push_back(item);
      }
    }
    const CheckpointView checkpoint{stored_,
                                    names_,
                                    *files_,
                                    [](const std::string&) -> const ManifestFile* { return nullptr; },
                                    options_.read.limits,
                                    /*bare=*/true};
    ReadWork work = plan_reads(plain, checkpoint, Verify::kNone, threads_for(options_.read, *files_));
    run_reads(work, planner, *files_, options_.read, role_, report);
    if (quantized.empty()) return;
    const QuantizedSource source{stored_, shown_, names_, quantized_, *files_, *options_.dequantize};
    read_quantized(source, quantized, planner, options_.read, report);
    std::sort(report.written.begin(), report.written.end());
    report.written.erase(std::unique(report.written.begin(), report.written.end()), report.written.end());
  }

  // The files of two saves have the same names: the coordinator, who read the headers, tells them apart by
  // their versions. The other ranks have only the headers to compare.
  bool was_replaced(const Error* error) override {
    if (!versions_.empty()) return versions() != versions_;
    if (error == nullptr || !described_) return false;
    try {
      return xxh3_128(as_bytes(fetch_hf_description(*files_, options_.read.limits))) != *described_;
    } catch (const Error&) {
      return true;  // or damaged: the coordinator finds out
    }
  }

 private:
  // Of everything here that could be read: a name, and what tells the file from others that had it.
  std::vector<std::pair<std::string, std::string>> versions() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const FileEntry& file : files_->list()) {
      if (file.name != kIndexFile && !file.name.ends_with(kSafetensorsEnding)) continue;
      all.emplace_back(file.name, files_->version_of(file.name).value_or(std::to_string(file.size)));
    }
    return all;
  }

  std::shared_ptr<const FileSystem> files_;
  HfReadOptions options_;
  ReaderRole role_;
  std::vector<std::pair<std::string, std::string>> versions_;  // on the coordinator: before it read anything
  std::optional<std::array<std::byte, 16>> described_;         // a digest of the description
  Metadata stored_;
  Metadata shown_;   // what it is when it is dequantised
  NameTable names_;  // of the metadata's entries, by position
  QuantizedTensors quantized_;
};

}  // namespace

std::unique_ptr<StorageReader> hf_reader(std::shared_ptr<const FileSystem> files,
                                         const HfReadOptions& options) {
  return std::make_unique<HfReader>(std::move(files), options);
}

}  // namespace cairn
