// The reader behind dcp_reader(), by its own name: load() may leave out steps that it knows it does not need.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/name_table.h"
#include "cairn/checkpoint_storage.h"
#include "checkpoint/description.h"

namespace cairn {

class DcpReader final : public StorageReader {
 public:
  DcpReader(std::shared_ptr<const FileSystem> files, const ReadOptions& options);

  std::string fetch_description() override;
  const Metadata& set_up_storage_reader(std::string description, const ReaderRole& role) override;
  std::vector<LoadPlan> prepare_global_plan(std::vector<LoadPlan> plans) override;
  bool plans_alone() const override { return true; }
  void read_data(const LoadPlan& plan, LoadPlanner& planner, ReadReport& report) override;
  bool was_replaced(const Error* error) override;
  std::vector<std::string> warnings() const override;

 private:
  const ManifestFile* sums_of(const std::string& file) const;

  std::shared_ptr<const FileSystem> files_;
  std::shared_ptr<const FileSystem> seen_;  // as of when the description was fetched, on the rank that did
  ReadOptions options_;
  ReaderRole role_;
  // What fetch_description understood on the way, and a digest of what it returned.
  std::vector<Metadata> fetched_;
  std::array<std::byte, 16> fetched_digest_{};
  std::string note_;  // what fetch_description found that the user should know
  Description description_;
  NameTable names_;  // of the metadata's entries, by position
};

}  // namespace cairn
