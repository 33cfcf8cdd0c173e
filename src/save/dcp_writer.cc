// A StorageWriter that keeps checkpoints as DCP's files.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/source.h"
#include "base/trial.h"
#include "base/utf8.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "save/file_jobs.h"
#include "save/file_stream.h"
#include "save/item_writer.h"
#include "save/publish.h"
#include "save/space.h"
#include "save/spread.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastPerFile = 16U << 20;       // less than this is not worth a file of its own
constexpr std::size_t kMostExpected = 64;                // items that a planner hears of ahead
constexpr std::uint64_t kMostExpectedBytes = 64U << 10;  // of each

bool is_small_tensor(const WriteItem& item) {
  return item.tensor_data && bytes_of(item) <= kMostExpectedBytes;
}

void check(const WriteOptions& options) {
  check_transforms(options.transforms);
  const auto bad = [](std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (options.files_per_rank < 0 || options.files_per_rank > 1024)
    bad(fmt::format("{} files per rank; 0 (chosen here) to 1024 are possible", options.files_per_rank));
  if (options.spare_cores < 0) bad(fmt::format("{} cores to spare; 0 or more are", options.spare_cores));
  if (options.memory_budget < kBuffersPerFile * kSmallestBuffer)
    bad(fmt::format("a memory budget of {} bytes; the least is {}", options.memory_budget,
                    kBuffersPerFile * kSmallestBuffer));
  if (options.transform != nullptr && !options.transforms.empty())
    bad("transforms by name and one of the caller's own; one of the two is possible");
}

class DcpWriter final : public StorageWriter {
 public:
  DcpWriter(std::shared_ptr<FileSystem> files, const WriteOptions& options)
      : files_(std::move(files)), options_(options), devices_(options.devices) {
    check(options);
  }

  std::optional<StorageMeta> storage_meta() const override {
    StorageMeta meta;
    meta.checkpoint_id = to_utf8(files_->root());
    meta.save_id = to_string(role_.save_id);
    meta.has_modules = true;
    return meta;
  }

  void set_up_storage_writer(const WriterRole& role) override {
    role_ = role;
    warnings_.clear();
    written_.clear();
    publication_.reset();
    if (role.is_coordinator || !role.collective)
      publication_ = std::make_unique<Publication>(*files_, role.save_id, options_, local_rank(),
                                                   role.world_size, role.attempt);
  }

  std::vector<SavePlan> prepare_global_plan(std::vector<SavePlan> plans) override {
    check_space(*files_, plans, options_.low_space, warnings_);
    return plans;
  }

  WrittenData write_data(const SavePlan& plan, SavePlanner& planner) override;

  void finish(Metadata& metadata, std::vector<WrittenData> all) override {
    std::vector<ManifestFile> sums;
    // Who derived from this way of writing may have written the data by himself: then nobody knows their
    // sums.
    if (std::any_of(
            all.begin(), all.end(),
            [](const WrittenData& rank) { return rank.attachment.empty() && !rank.results.empty(); }) ||
        !metadata.foreign_storage_data.is<None>())
      publication_->leave_out_sums();
    for (WrittenData& rank : all) {
      for (const WriteResult& result : rank.results)
        metadata.storage_data.add(result.index, result.storage_data);
      if (rank.attachment.empty()) continue;
      Manifest part = read_manifest(*memory_source(as_bytes(rank.attachment), "a rank's checksums"));
      if (part.save_id != role_.save_id) throw Error(ErrorCode::kConflict, "a rank wrote for another save");
      std::move(part.files.begin(), part.files.end(), std::back_inserter(sums));
    }
    CAIRN_POINT("finish.before_publish");
    written_.push_back(manifest_name(role_.save_id, local_rank()));
    publication_->publish(metadata, std::move(sums), role_.deadline, warnings_);
  }

  void retire_collective() override {
    if (publication_) publication_->complete();
  }

  void abandon() noexcept override {
    try {
      CAIRN_POINT("abandon.begun");
      if (!has_published()) files_->remove_all(written_);
      CAIRN_POINT("abandon.before_unlock");
    } catch (...) {
      // The next save or `cairn gc` finds them.
    }
    written_.clear();
    publication_.reset();
  }

  std::vector<std::string> warnings() const override { return warnings_; }
  // A rank's own part is not enough: until all ranks have theirs the checkpoint before it loads.
  bool is_published() override {
    return has_published() && (role_.collective || (publication_ && publication_->stands()));
  }

 private:
  bool has_published() const { return is_published_by(*files_, role_.save_id, local_rank()); }

  std::optional<int> local_rank() const {
    return role_.collective ? std::nullopt : std::optional(role_.rank);
  }

  // Files that are written at the same time.
  int most_at_once() const {
    if (options_.files_per_rank > 0) return options_.files_per_rank;
    const int cores = core_count();
    // Ranks of one machine share its cores; how many of them are there nobody here knows.
    const int share = role_.world_size > 1 ? std::clamp(cores / role_.world_size, 4, 16) : 16;
    return files_at_once(*files_, std::clamp(cores - options_.spare_cores, 1, share));
  }

  // Which items go into which file.
  std::vector<std::vector<std::size_t>> spread(const SavePlan& plan, const std::vector<std::uint64_t>& sizes,
                                               std::uint64_t bytes) const {
    if (options_.file_per_item) {
      std::vector<std::vector<std::size_t>> files(plan.items.size());
      for (std::size_t i = 0; i < files.size(); ++i) files[i] = {i};
      return files;
    }
    const auto most = static_cast<std::uint64_t>(most_at_once());
    const std::uint64_t files =
        options_.files_per_rank > 0 ? most : std::clamp<std::uint64_t>(bytes / kLeastPerFile, 1, most);
    return spread_items(plan.items, sizes, static_cast<int>(files));
  }

  bool transforms() const { return options_.transform != nullptr || !options_.transforms.empty(); }

  // A file's share of half the budget, cut into buffers.
  std::uint64_t buffer_bytes(int files, int buffers, std::uint64_t most) const {
    return buffer_share(options_.memory_budget, files, buffers, most);
  }

  // The other half is for tensors of devices.
  ItemOptions item_options(int files) {
    ItemOptions items{options_.transforms, options_.transform.get(), &devices_, {}, options_.limits};
    items.ring.slot_bytes = buffer_bytes(files, static_cast<int>(items.ring.slots), items.ring.slot_bytes);
    return items;
  }

  StreamOptions stream_options(int files) const {
    StreamOptions stream;
    stream.buffers = kBuffersPerFile;
    stream.buffer_bytes = buffer_bytes(files, kBuffersPerFile, kLargestBuffer);
    stream.checksums = options_.checksums;
    stream.strong_hashes = options_.strong_hashes;
    return stream;
  }

  struct Job;
  std::unique_ptr<FileWriter> create(const Job& job) const;
  void write_file(Job& job, SavePlanner& planner, Pace& pace, const StreamOptions& stream,
                  const ItemOptions& items, FileJobs& all);

  std::shared_ptr<FileSystem> files_;
  const WriteOptions options_;
  LazyDriver devices_;
  WriterRole role_;
  std::unique_ptr<Publication> publication_;
  std::vector<std::string> written_;  // files of this rank that may be there
  std::vector<std::string> warnings_;
};

// One file and what goes into it.
struct DcpWriter::Job {
  std::string name;
  const WriteItems* items;
  std::vector<std::size_t> positions;  // of its items in the plan
  std::uint64_t size = 0;              // at least what it will be
  std::vector<WriteResult> results;
  ManifestFile sums;
};

// A file that gets no room is refused before its first byte: the tensor is named at which the room would end.
std::unique_ptr<FileWriter> DcpWriter::create(const Job& job) const {
  try {
    // How well a transform does is not known: nothing is reserved then.
    const std::uint64_t size = transforms() ? 0 : job.size;
    return files_->create(job.name, {.size = size, .durable = options_.durable, .in_place = true});
  } catch (Error& e) {
    if (!is_full(e) || job.positions.empty()) throw;
    const std::uint64_t room = files_->free_space().value_or(0);
    std::uint64_t end = 0;
    const auto has_none = [&](std::size_t position) {
      return (end += ItemWriter::most_bytes(bytes_of((*job.items)[position]))) > room;
    };
    const auto found = std::find_if(job.positions.begin(), job.positions.end(), has_none);
    e.of_tensor((*job.items)[found == job.positions.end() ? job.positions.back() : *found].index.fqn);
    throw;
  }
}

void DcpWriter::write_file(Job& job, SavePlanner& planner, Pace& pace, const StreamOptions& options,
                           const ItemOptions& items, FileJobs& all) {
  StreamOptions own = options;  // a small file has small buffers
  if (options_.file_per_item)
    own.buffer_bytes = std::clamp<std::uint64_t>(align_up(job.size, kDirectAlignment),
                                                 std::min<std::uint64_t>(kSmallestBuffer, own.buffer_bytes),
                                                 own.buffer_bytes);
  FileStream stream(create(job), own);
  ItemWriter writer(stream, job.name, planner, pace, items);
  const std::size_t count = job.positions.size();
  std::vector<WriteItem> next;
  for (std::size_t i = 0; i < count;) {
    next.clear();
    do {
      next.push_back((*job.items)[job.positions[i++]]);
    } while (i < count && is_small_tensor(next.back()) && next.size() < kMostExpected);
    planner.expect(std::span(next).first(next.size() - (is_small_tensor(next.back()) ? 0 : 1)));
    for (const WriteItem& item : next) {
      if (all.stopped()) return;
      pace.pass(0);
      job.results.push_back(writer.write(item));
      all.report(bytes_of(item));
    }
  }
  CAIRN_POINT("write.before_commit");
  job.sums = stream.commit(job.name);
  CAIRN_POINT("write.file_committed");
}

WrittenData DcpWriter::write_data(const SavePlan& plan, SavePlanner& planner) {
  std::vector<std::uint64_t> sizes;
  std::uint64_t total = 0;
  for (const WriteItem item : plan.items) {
    sizes.push_back(ItemWriter::most_bytes(bytes_of(item)));
    total = checked_add(total, bytes_of(item));
  }
  const std::vector<std::vector<std::size_t>> files = spread(plan, sizes, total);
  check_space(*files_, {&plan, 1}, options_.low_space, warnings_);
  std::vector<Job> jobs(files.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].name = data_file_name(role_.rank, static_cast<int>(i), role_.save_id);
    jobs[i].items = &plan.items;
    jobs[i].positions = files[i];
    for (const std::size_t position : files[i]) jobs[i].size += sizes[position];
    written_.push_back(jobs[i].name);
  }
  CAIRN_POINT("write.before_files");
  const int at_once = std::clamp(static_cast<int>(jobs.size()), 1, std::max(most_at_once(), 1));
  const StreamOptions stream = stream_options(at_once);
  const ItemOptions items = item_options(at_once);
  Pace pace(role_.cancelled, role_.deadline, options_.bytes_per_second);
  FileJobs all(role_.progress, total);
  all.run(jobs.size(), at_once,
          [&](std::size_t i) { write_file(jobs[i], planner, pace, stream, items, all); });

  WrittenData data;
  std::vector<ManifestFile> sums;
  for (Job& job : jobs) {
    std::move(job.results.begin(), job.results.end(), std::back_inserter(data.results));
    if (options_.checksums) sums.push_back(std::move(job.sums));
  }
  CAIRN_POINT("write.before_directory_sync");
  if (options_.durable) files_->sync_directory();
  // Without checksums it still says for which save this rank has written.
  data.attachment = encode_manifest(role_.save_id, options_.strong_hashes, sums);
  return data;
}

}  // namespace

std::unique_ptr<StorageWriter> dcp_writer(std::shared_ptr<FileSystem> files, const WriteOptions& options) {
  return std::make_unique<DcpWriter>(std::move(files), options);
}

}  // namespace cairn
