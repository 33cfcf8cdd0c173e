#include "cairn/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/current_error.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/formats.h"
#include "convert/convert_dcp.h"
#include "convert/convert_entries.h"
#include "convert/convert_layout.h"
#include "convert/convert_place.h"
#include "convert/convert_write.h"
#include "format/safetensors.h"
#include "save/hf_publish.h"
#include "storage/scratch.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastBudget = 16U << 20;
constexpr std::size_t kMostNamed = 32;

void check(const ConvertOptions& options) {
  const auto bad = [](std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); };
  if (options.memory_budget < kLeastBudget)
    bad(fmt::format("a memory budget of {} bytes; the least is {}", options.memory_budget, kLeastBudget));
  if (options.ranks < 1 || options.ranks > 4096)
    bad(fmt::format("{} ranks; 1 to 4096 are possible", options.ranks));
  if (options.shards < 0) bad("a negative number of files");
  if (options.threads < 0) bad("a negative number of threads");
  if (options.shards > 0 && options.max_shard_size > 0)
    bad("either the number of files or their size can be chosen, not both");
}

bool holds_objects(Format format) { return format == Format::kDcp || format == Format::kTorchFile; }

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

// Takes the objects out where the destination cannot hold them. Returns their names.
std::vector<std::string> drop_objects(std::vector<ConvertEntry>& entries, Format to, bool allowed) {
  if (holds_objects(to)) return {};
  std::vector<std::string> dropped;
  for (const ConvertEntry& entry : entries)
    if (!entry.tensor) dropped.push_back(entry.from);
  if (!dropped.empty() && !allowed) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("safetensors files hold tensors only, and these are objects: {}; leave them out "
                            "with skip_objects (--skip-objects)",
                            list_of(dropped)));
  }
  std::erase_if(entries, [](const ConvertEntry& entry) { return !entry.tensor; });
  return dropped;
}

// Tensors that the index of a directory promises and that are not there.
void require_complete(const StoredCheckpoint& checkpoint, const std::string& path) {
  for (const auto& [tensor, file] : checkpoint.missing_tensors()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the index says it is in '{}', which is missing or does not have it", file))
        .of_tensor(tensor)
        .in_file(fmt::format("{}/{}", path, file));
  }
}

void fill(ConvertReport& report, const std::vector<ConvertEntry>& entries, const CheckpointSource& source) {
  for (const ConvertEntry& entry : entries) {
    if (!entry.tensor) {
      report.objects.push_back({entry.from, entry.name});
      continue;
    }
    const DType from = source.checkpoint().tensors()[*entry.tensor].dtype;
    report.tensors.push_back({entry.from, entry.name, from, entry.dtype, entry.shape, entry.bytes, ""});
    report.bytes += entry.bytes;
  }
}

void fill(ConvertReport& report, const OutputLayout& layout, const std::vector<ConvertEntry>& entries) {
  for (const FileLayout& file : layout.files) report.files.push_back({file.name, file.bytes});
  std::size_t tensor = 0;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].tensor) report.tensors[tensor++].file = layout.file_of[i];
}

OutputLayout lay_out(Format to, const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                     const std::string& file_name, const ConvertOptions& options) {
  if (to == Format::kSafetensors) return lay_out_safetensors(entries, file_name, options);
  if (to == Format::kHuggingFace) return lay_out_hugging_face(entries, options);
  return lay_out_torch(entries, source, file_name);
}

// What the index names that is going to be replaced. The source may be among it, and is only read.
std::set<std::string> files_of_old_index(const FileSystem& files, const std::string& source) {
  std::set<std::string> old = named_by_index(files);
  const Place place = find_place(source, kForReading);
  if (!place.is_file()) return old;
  const std::optional<std::string> read = place.files->version_of(place.name);
  std::erase_if(old, [&](const std::string& name) { return read && files.version_of(name) == read; });
  return old;
}

// The new index is durable by now, and names other files.
void remove_old_files(FileSystem& files, std::set<std::string> old, const OutputLayout& layout,
                      bool durable) {
  for (const std::string& name : layout.file_of) old.erase(name);
  files.remove_all(std::vector(old.begin(), old.end()));
  if (durable && !old.empty()) files.sync_directory();
}

void convert_to_files(const std::string& path, const std::vector<ConvertEntry>& entries,
                      const CheckpointSource& source, ConvertPlace& place, const ConvertOptions& options,
                      ConvertReport& report) {
  OutputLayout layout = lay_out(report.to, entries, source, place.file_name(), options);
  fill(report, layout, entries);
  if (options.dry_run) return;
  const bool replaces_index = report.to == Format::kHuggingFace && options.overwrite && options.index;
  std::set<std::string> old;
  if (replaces_index) old = files_of_old_index(*place.files(), path);
  const WrittenFiles written = write_files(*place.files(), layout, entries, source, options);
  remove_old_files(*place.files(), std::move(old), layout, options.durable);
  report.read_back = written.read_back;
  report.verified = source.checks().verified() + written.source_checked;
}

}  // namespace

Format format_of_destination(const std::string& destination, const ConvertOptions& options) {
  if (options.to == Format::kSafetensors && !destination.ends_with(".safetensors"))
    return Format::kHuggingFace;
  if (options.to) return *options.to;
  const std::string name = split_url(destination).name;
  const std::string ending = name.substr(std::min(name.rfind('.'), name.size()));
  if (ending == ".safetensors") return Format::kSafetensors;
  if (ending == ".pt" || ending == ".pth" || ending == ".bin" || ending == ".ckpt") return Format::kTorchFile;
  const bool sharded = options.shards > 0 || options.max_shard_size > 0 || !options.file_of.empty();
  return sharded ? Format::kHuggingFace : Format::kDcp;
}

namespace {

ConvertReport run_convert(const std::string& source, const std::string& destination,
                          const ConvertOptions& options) {
  check(options);
  const CheckpointSource from(source, {.memory_budget = options.memory_budget,
                                       .spill_directory = scratch_directory(destination),
                                       .limits = options.limits});
  ConvertReport report;
  report.from = from.checkpoint().format();
  report.to = format_of_destination(destination, options);
  require_complete(from.checkpoint(), source);
  std::vector<ConvertEntry> entries = choose_entries(from, options);
  report.dropped = drop_objects(entries, report.to, options.skip_objects);
  fill(report, entries, from);

  CAIRN_POINT("convert.chosen");
  ConvertPlace place(source, destination, report.to, options);
  if (report.to == Format::kDcp) {
    convert_to_dcp(entries, from, place, options, report);
  } else {
    convert_to_files(source, entries, from, place, options, report);
  }
  CAIRN_POINT("convert.written");
  place.keep();
  return report;
}

}  // namespace

ConvertReport convert(const std::string& source, const std::string& destination,
                      const ConvertOptions& options) {
  return with_typed_errors([&] { return run_convert(source, destination, options); });
}

}  // namespace cairn
