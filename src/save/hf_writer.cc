// A StorageWriter that keeps checkpoints as Hugging Face keeps models.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "cairn/hugging_face.h"
#include "checkpoint/dcp_names.h"
#include "format/hf_names.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"
#include "save/file_jobs.h"
#include "save/file_stream.h"
#include "save/hf_layout.h"
#include "save/hf_publish.h"
#include "save/item_writer.h"
#include "save/space.h"
#include "storage/file_names.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

constexpr std::uint64_t kWoven = 1U << 20;  // bytes that are put together at a time
constexpr std::size_t kNamed = 5;           // entries that an error names
constexpr int kMostThreads = 16;

std::string list_of(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamed);
  std::string text =
      fmt::format("'{}'", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), "', '"));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

class HfWriter final : public StorageWriter {
 public:
  HfWriter(std::shared_ptr<FileSystem> files, const HfWriteOptions& options)
      : files_(std::move(files)), options_(options), devices_(options.write.devices) {
    if (files_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "a writer needs a file system");
    for (const auto& [fqn, index] : options_.file_of) largest_ = std::max(largest_, index);
  }

  void set_up_storage_writer(const WriterRole& role) override {
    role_ = role;
    warnings_.clear();
    renames_.clear();
    lock_.reset();
    if (!role.collective)
      throw Error(ErrorCode::kUnsupported,
                  "Hugging Face has no checkpoints of single ranks: use collectives");
    if (!role.is_coordinator) return;
    lock_ = files_->lock(lock_name());
    CAIRN_POINT("hf.locked");
    if (options_.write.overwrite) return;
    for (const FileEntry& file : files_->list()) {
      if (file.name != kIndexFile && !is_hf_shard(file.name)) continue;
      throw Error(ErrorCode::kConflict, "Checkpoint already exists, and overwriting is off: save elsewhere")
          .in_file(files_->root());
    }
  }

  SavePlan prepare_local_plan(SavePlan plan) override {
    std::vector<std::string> objects;
    WriteItems tensors;
    for (const WriteItem item : plan.items) {
      if (item.type == WriteItemType::kByteIO) {
        objects.push_back(item.index.fqn);
      } else {
        tensors.push_back(item);
      }
    }
    if (objects.empty()) return plan;
    if (options_.objects == HfObjects::kRefuse) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("safetensors hold tensors only, not {}: leave them out, or save a DCP checkpoint",
                      list_of(objects)))
          .of_tensor(objects.front());
    }
    plan.items = std::move(tensors);
    return plan;
  }

  std::vector<SavePlan> prepare_global_plan(std::vector<SavePlan> plans) override {
    std::map<int, std::size_t> writers;  // of each file
    for (std::size_t rank = 0; rank < plans.size() && !options_.sharded; ++rank)
      require_alone(plans[rank], rank, writers);
    check_space(*files_, plans, options_.write.low_space, warnings_);
    return plans;
  }

  WrittenData write_data(const SavePlan& plan, SavePlanner& planner) override;
  void finish(Metadata& metadata, std::vector<WrittenData> all) override;

  void abandon() noexcept override {
    try {
      CAIRN_POINT("hf.before_abandon");
      std::vector<std::string> partial;
      for (const auto& [from, to] : renames_) partial.push_back(from);
      files_->remove_all(partial);
    } catch (...) {
      // `cairn gc` finds them.
    }
    renames_.clear();
    lock_.reset();
  }

  std::vector<std::string> warnings() const override { return warnings_; }

  // The coordinator gives the files their names when all is there.
  bool is_published() override {
    if (renames_.empty()) return false;
    return std::all_of(renames_.begin(), renames_.end(), [&](const auto& rename) {
      return !files_->stat(rename.first) && files_->stat(rename.second);
    });
  }

 private:
  struct Job;

  void require_alone(const SavePlan& plan, std::size_t rank, std::map<int, std::size_t>& writers) const {
    for (const HfFile& file : lay_out(plan.items, options_.file_of)) {
      const auto [known, fresh] = writers.emplace(file.index, rank);
      if (fresh || known->second == rank) continue;
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("ranks {} and {} would both write '{}': let one rank save alone, or save sharded "
                      "(save_distributed=True)",
                      known->second, rank, hf_file_name(file.index, largest_)))
          .of_tensor(file.entries.front().fqn);
    }
  }

  std::string name_of_file(const HfFile& file) const;
  void write_file(Job& job, SavePlanner& planner, Pace& pace, FileJobs& all);
  void write_entry(Job& job, ItemWriter& writer, FileStream& stream, Pace& pace, const HfEntry& entry);
  void weave(const HfEntry& entry, ItemWriter& writer, FileStream& stream, Pace& pace, Job& job);

  std::shared_ptr<FileSystem> files_;
  const HfWriteOptions options_;
  LazyDriver devices_;
  int largest_ = 1;  // index of a file
  WriterRole role_;
  std::unique_ptr<FileLock> lock_;
  HfRenames renames_;  // of this rank's files
  std::vector<std::string> warnings_;
};

// One file and what goes into it.
struct HfWriter::Job {
  const HfFile* file = nullptr;
  const WriteItems* items = nullptr;
  std::string name;     // that it will have
  std::string partial;  // that it has until then
  int at_once = 1;      // files that are written at the same time
  std::vector<WriteResult> results;
};

// Parts that need a file of their own take the number of a rank that is not there.
std::string HfWriter::name_of_file(const HfFile& file) const {
  if (options_.sharded)
    return hf_file_name(file.index, largest_, role_.rank + 1 + file.layer * role_.world_size);
  if (file.layer == 0) return hf_file_name(file.index, largest_);
  throw Error(ErrorCode::kUnsupported, "the parts of the tensor that are here make up no box: save sharded")
      .of_tensor(file.entries.front().fqn);
}

// Items whose elements do not follow each other: a stretch of the entry is put together at a time.
void HfWriter::weave(const HfEntry& entry, ItemWriter& writer, FileStream& stream, Pace& pace, Job& job) {
  std::vector<std::pair<Box, Value>> parts;
  const auto begin = static_cast<std::int64_t>(stream.position());
  for (const std::size_t position : entry.items) {
    const WriteItem item = (*job.items)[position];
    parts.emplace_back(item.tensor_data.value().chunk, writer.resolve_tensor(item));
    if (!parts.back().second.get<Tensor>().view().device.is_cpu())
      throw Error(ErrorCode::kUnsupported, "parts of one tensor in a device's memory: save sharded");
    const auto length = static_cast<std::int64_t>(bytes_of(item));
    job.results.push_back({item.index, length, {job.name, begin, length, {}, {}}});
  }
  Tensor woven = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(kWoven)});
  const std::uint64_t item_bytes = item_size(entry.dtype);
  for_each_piece(
      entry.box, kWoven,
      [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item_bytes; },
      [&](const Box& box) {
        const TensorView to = TensorView::contiguous(woven.view().data, entry.dtype, box.sizes);
        for (const auto& [chunk, value] : parts) {
          const std::optional<Box> common = intersect(chunk, box);
          if (!common) continue;
          Box there = *common, here = *common;
          for (std::size_t d = 0; d < box.rank(); ++d) {
            there.offsets[d] -= chunk.offsets[d];
            here.offsets[d] -= box.offsets[d];
          }
          copy(value.get<Tensor>().view().narrow(there), to.narrow(here));
        }
        pace.pass(to.bytes());
        stream.append(woven.bytes().first(to.bytes()));
      });
}

void HfWriter::write_entry(Job& job, ItemWriter& writer, FileStream& stream, Pace& pace,
                           const HfEntry& entry) {
  stream.begin_tensor(entry.fqn);
  try {
    if (!entry.in_rows) return weave(entry, writer, stream, pace, job);
    for (const std::size_t position : entry.items) {
      pace.pass(0);
      job.results.push_back(writer.write_bare((*job.items)[position]));
    }
  } catch (Error& e) {
    e.of_tensor(entry.fqn);
    throw;
  }
}

void HfWriter::write_file(Job& job, SavePlanner& planner, Pace& pace, FileJobs& all) {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::pair<std::string, Shape>> offsets;
  for (const HfEntry& entry : job.file->entries) {
    entries.push_back({entry.fqn, entry.dtype, entry.box.sizes, 0, 0});
    offsets.emplace_back(entry.fqn, entry.box.offsets);
  }
  const std::string header =
      make_safetensors_header(entries, {{std::string(kShardingInfoKey), write_sharding_info(offsets)},
                                        {std::string(kHfVersionKey), std::string(kHfVersion)},
                                        {std::string(kHfFormatKey), std::string(kHfFormat)}});
  const std::uint64_t size = entries.empty() ? header.size() : entries.back().offset + entries.back().bytes;
  StreamOptions stream_options;
  stream_options.buffers = kBuffersPerFile;
  stream_options.buffer_bytes =
      buffer_share(options_.write.memory_budget, job.at_once, kBuffersPerFile, kLargestBuffer);
  stream_options.checksums = false;
  ItemOptions items;
  items.devices = &devices_;
  FileStream stream(files_->create(job.partial, {.size = size, .durable = options_.write.durable}),
                    stream_options);
  ItemWriter writer(stream, job.name, planner, pace, items);
  stream.append(as_bytes(header));
  for (const HfEntry& entry : job.file->entries) {
    if (all.stopped()) return;
    write_entry(job, writer, stream, pace, entry);
    all.report(static_cast<std::uint64_t>(entry.box.volume()) * item_size(entry.dtype));
  }
  (void)stream.commit(job.partial);
}

WrittenData HfWriter::write_data(const SavePlan& plan, SavePlanner& planner) {
  WrittenData data;
  if (plan.items.empty()) return data;
  const std::vector<HfFile> layout = lay_out(plan.items, options_.file_of);
  const int wanted = options_.write.files_per_rank > 0 ? options_.write.files_per_rank
                                                       : files_at_once(*files_, core_count());
  std::vector<Job> jobs(layout.size());
  const int at_once = std::min({static_cast<int>(jobs.size()), wanted, kMostThreads});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].file = &layout[i];
    jobs[i].items = &plan.items;
    jobs[i].name = name_of_file(layout[i]);
    jobs[i].partial = partial_name(jobs[i].name);
    jobs[i].at_once = at_once;
    renames_.emplace_back(jobs[i].partial, jobs[i].name);
  }
  std::uint64_t total = 0;
  for (const WriteItem item : plan.items) total = checked_add(total, bytes_of(item));
  check_space(*files_, {&plan, 1}, options_.write.low_space, warnings_);
  Pace pace(role_.cancelled, role_.deadline, options_.write.bytes_per_second);
  FileJobs all(role_.progress, total);
  all.run(jobs.size(), at_once, [&](std::size_t i) { write_file(jobs[i], planner, pace, all); });
  for (Job& job : jobs) std::move(job.results.begin(), job.results.end(), std::back_inserter(data.results));
  CAIRN_POINT("hf.written");
  if (options_.write.durable) files_->sync_directory();
  data.attachment = encode_renames(renames_);
  return data;
}

void HfWriter::finish(Metadata& metadata, std::vector<WrittenData> all) {
  for (const WrittenData& rank : all)
    for (const WriteResult& result : rank.results)
      metadata.storage_data.add(result.index, result.storage_data);
  // The other ranks have given up, and somebody may be saving again.
  if (std::chrono::steady_clock::now() > role_.deadline)
    throw Error(ErrorCode::kTimeout, "the save's deadline passed before it could be published");
  publish_hf(*files_, options_.sharded, options_.write.durable, all);
  lock_.reset();
}

}  // namespace

std::unique_ptr<StorageWriter> hf_writer(std::shared_ptr<FileSystem> files, const HfWriteOptions& options) {
  return std::make_unique<HfWriter>(std::move(files), options);
}

}  // namespace cairn
