// Reads a DCP checkpoint: what is wanted of it, in parallel, checked on the way.
#include <utility>

#include "base/hash.h"
#include "base/source.h"
#include "base/trial.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "checkpoint/description.h"
#include "format/dcp_metadata.h"
#include "load/dcp_reader.h"
#include "reading/read_run.h"
#include "reading/read_work.h"

namespace cairn {
DcpReader::DcpReader(std::shared_ptr<const FileSystem> files, const ReadOptions& options)
    : files_(std::move(files)), seen_(files_), options_(options) {
  if (files_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "a reader needs a file system");
}

std::string DcpReader::fetch_description() {
  seen_ = files_;
  std::string description =
      fetch_dcp_description(seen_, options_.verify != Verify::kNone, options_.limits, &fetched_, &note_);
  fetched_digest_ = xxh3_128(as_bytes(description));
  return description;
}

const Metadata& DcpReader::set_up_storage_reader(std::string description, const ReaderRole& role) {
  role_ = role;
  const bool own = !fetched_.empty() && xxh3_128(as_bytes(description)) == fetched_digest_;
  std::vector<Metadata> parsed = std::exchange(fetched_, {});
  if (!own) {
    parsed.clear();
    seen_ = files_;
  }
  description_ = read_description(description, files_->root(), options_.verify != Verify::kNone,
                                  options_.limits, std::move(parsed), role.rank);
  names_ = NameTable();
  names_.reserve(description_.metadata.state_dict_metadata.size());
  for (const auto& [name, entry] : description_.metadata.state_dict_metadata) names_.intern(name);
  return description_.metadata;
}

// What has one name on two ranks need not be the same when each saved its own.
std::vector<LoadPlan> DcpReader::prepare_global_plan(std::vector<LoadPlan> plans) {
  if (description_.rank_local)
    for (LoadPlan& plan : plans) plan.shared.clear();
  return plans;
}

const ManifestFile* DcpReader::sums_of(const std::string& file) const {
  if (!description_.has_manifest) return nullptr;
  const auto known = description_.sums.find(file);
  if (known != description_.sums.end()) return &known->second;
  throw Error(ErrorCode::kCorrupt, "the manifest says nothing about the file")
      .in_file(files_->root() + "/" + file);
}

void DcpReader::read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) {
  const CheckpointView checkpoint{description_.metadata,
                                  names_,
                                  *seen_,
                                  [this](const std::string& file) { return sums_of(file); },
                                  options_.limits,
                                  false,
                                  options_.transform.get()};
  ReadWork work = plan_reads(plan, checkpoint, options_.verify, threads_for(options_, *seen_));
  CAIRN_POINT("load.reads_planned");
  run_reads(work, planner, *seen_, options_, role_, report);
}

// Files of two saves have two names: what could be read is of one.
bool DcpReader::was_replaced(const Error* error) {
  if (error == nullptr || description_.made_of.empty()) return false;
  try {
    return !is_described_by(*files_, description_, options_.limits);
  } catch (const Error&) {
    return false;  // then there is nothing to begin again with
  }
}

std::vector<std::string> DcpReader::warnings() const {
  return note_.empty() ? std::vector<std::string>() : std::vector<std::string>{files_->root() + ": " + note_};
}

std::unique_ptr<StorageReader> dcp_reader(std::shared_ptr<const FileSystem> files,
                                          const ReadOptions& options) {
  return std::make_unique<DcpReader>(std::move(files), options);
}

}  // namespace cairn
