#include "convert/convert_dcp.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/trial.h"
#include "cairn/cairn.h"
#include "convert/convert_items.h"
#include "convert/convert_write.h"
#include "format/manifest.h"

namespace cairn {
namespace {

// Plans the items of one rank, and reads each when it is about to be written.
class ConvertPlanner final : public SavePlanner {
 public:
  ConvertPlanner(ConvertItems& items, int rank) : items_(items), rank_(rank) {}

  void set_up_planner(const StateDict&, const StorageMeta*, bool) override {}
  SavePlan create_local_plan() override { return items_.plan_of(rank_); }
  GlobalSavePlan create_global_plan(std::vector<SavePlan> all) override {
    GlobalSavePlan global = create_default_global_save_plan(std::move(all));
    require_valid(validate_global_plan(global.plans, *global.metadata));
    return global;
  }
  SavePlan finish_plan(SavePlan central) override { return central; }
  Value resolve_data(const WriteItem& item) override { return items_.read(item); }
  std::optional<std::string> resolve_archive(const WriteItem& item) override {
    if (item.type != WriteItemType::kByteIO) return std::nullopt;
    return items_.read_archive(item.index.fqn);
  }

 private:
  ConvertItems& items_;
  int rank_;
};

// A writer whose files are read back before anybody can take them for a checkpoint.
class ReadBackWriter final : public StorageWriter {
 public:
  ReadBackWriter(std::shared_ptr<FileSystem> files, const WriteOptions& write, const ConvertOptions& options,
                 std::atomic<std::uint64_t>& compared)
      : files_(files), inner_(dcp_writer(std::move(files), write)), options_(options), compared_(compared) {}

  std::optional<StorageMeta> storage_meta() const override { return inner_->storage_meta(); }
  void set_up_storage_writer(const WriterRole& role) override { inner_->set_up_storage_writer(role); }
  SavePlan prepare_local_plan(SavePlan plan) override { return inner_->prepare_local_plan(std::move(plan)); }
  std::vector<SavePlan> prepare_global_plan(std::vector<SavePlan> plans) override {
    return inner_->prepare_global_plan(std::move(plans));
  }
  WrittenData write_data(const SavePlan& plan, SavePlanner& planner) override {
    WrittenData data = inner_->write_data(plan, planner);
    CAIRN_POINT("convert.dcp_before_read_back");
    if (options_.verify && !data.attachment.empty())
      read_back(read_manifest(*memory_source(as_bytes(data.attachment), "a rank's checksums")));
    return data;
  }
  void finish(Metadata& metadata, std::vector<WrittenData> all) override {
    inner_->finish(metadata, std::move(all));
  }
  void abandon() noexcept override { inner_->abandon(); }
  bool is_published() override { return inner_->is_published(); }
  std::vector<std::string> warnings() const override { return inner_->warnings(); }

 private:
  void read_back(const Manifest& written) {
    for (const ManifestFile& file : written.files) {
      const auto source = files_->open(file.name);
      const int threads = options_.ranks > 1 ? 1 : convert_threads(options_, 4 * kManifestBlock);
      std::vector<Tensor> buffers(static_cast<std::size_t>(threads));
      for_each_in_parallel(file.block_crcs.size(), threads, [&](std::size_t block, int thread) {
        Tensor& buffer = buffers[static_cast<std::size_t>(thread)];
        if (buffer.view().data == nullptr)
          buffer = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(kManifestBlock)});
        check_block(*source, file, block, buffer.bytes());
      });
    }
  }

  void check_block(const ByteSource& source, const ManifestFile& file, std::size_t block,
                   std::span<std::byte> buffer) {
    if (options_.cancelled != nullptr && *options_.cancelled)
      throw Error(ErrorCode::kCancelled, "the conversion was cancelled");
    const std::uint64_t offset = block * kManifestBlock;
    const std::span<std::byte> bytes = buffer.first(std::min(kManifestBlock, file.size - offset));
    source.read_at(offset, bytes);
    if (crc32(bytes) != file.block_crcs[block]) {
      throw Error(ErrorCode::kCorrupt,
                  "what was written reads back as something else: the storage is at fault")
          .in_file(source.name())
          .at(offset);
    }
    compared_ += bytes.size();
  }

  std::shared_ptr<FileSystem> files_;
  std::unique_ptr<StorageWriter> inner_;
  const ConvertOptions& options_;
  std::atomic<std::uint64_t>& compared_;
};

WriteOptions write_options(const ConvertOptions& options) {
  WriteOptions write;
  write.overwrite = options.overwrite;
  write.files_per_rank = options.files > 0 || options.ranks == 1 ? options.files : 1;
  write.durable = options.durable;
  write.transforms = options.transforms;
  // Its streams take half of it: a quarter of the budget for all ranks together.
  write.memory_budget =
      std::max<std::uint64_t>(options.memory_budget / 2 / static_cast<unsigned>(options.ranks), 1U << 20);
  return write;
}

// Every file that is being written has buffers.
void require_room(const ConvertOptions& options) {
  constexpr std::uint64_t kLeastPerFile = 384U << 10;
  const auto files =
      static_cast<std::uint64_t>(options.ranks) * static_cast<unsigned>(std::max(options.files, 1));
  if (files * kLeastPerFile <= options.memory_budget / 2) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} files written at once need a memory budget of {} bytes or more", files,
                          2 * files * kLeastPerFile));
}

// A source may say that a tensor has 2^62 bytes, in a few hundred of its own: what cannot be written is
// refused before it is planned. Compressed, nobody knows yet how much it will be.
void require_space(const std::vector<ConvertEntry>& entries, const FileSystem& files,
                   const ConvertOptions& options) {
  const std::optional<std::uint64_t> room = options.transforms.empty() ? files.free_space() : std::nullopt;
  std::uint64_t needed = 0;
  for (const ConvertEntry& entry : entries) {
    if (!entry.tensor) continue;
    if (__builtin_add_overflow(needed, entry.bytes, &needed) || (room && needed > *room)) {
      throw Error(ErrorCode::kIo, "no room for the tensors")
          .of_tensor(entry.name)
          .in_file(files.root())
          .with_errno(ENOSPC);
    }
  }
}

// What really failed, rather than that some ranks did.
[[noreturn]] void throw_root(const CheckpointError& error) {
  const Error* root = nullptr;
  for (const auto& [rank, failure] : error.failures())
    if (root == nullptr || root->code() == ErrorCode::kCancelled) root = &failure;
  throw root == nullptr ? Error(error) : *root;
}

}  // namespace

void convert_to_dcp(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                    ConvertPlace& place, const ConvertOptions& options, ConvertReport& report) {
  require_room(options);
  if (options.dry_run) return;
  require_space(entries, *place.files(), options);
  ConvertItems items(entries, source, options);
  std::atomic<std::uint64_t> compared = 0;
  const WriteOptions write = write_options(options);
  const auto save_rank = [&](Group* group, int rank) {
    ConvertPlanner planner(items, rank);
    ReadBackWriter writer(place.files(), write, options, compared);
    SaveOptions saving;
    saving.group = group;
    saving.planner = &planner;
    saving.writer = &writer;
    saving.deadline = std::chrono::hours(24 * 365);
    saving.cancelled = options.cancelled;
    save(StateDict{}, place.files()->root(), saving);
  };
  try {
    if (options.ranks == 1) {
      save_rank(nullptr, 0);
    } else {
      run_ranks(options.ranks, [&](Group& group) { save_rank(&group, group.rank()); });
    }
  } catch (const CheckpointError& e) {
    throw_root(e);
  }
  try {
    for (const FileEntry& file : place.files()->list()) report.files.push_back({file.name, file.size});
  } catch (...) {
    report.files.clear();  // the checkpoint is there; who wants the names can still look
  }
  report.read_back = compared;
  report.verified = source.checks().verified();
}

}  // namespace cairn
