// Who wrote a DCP checkpoint, and how, as far as its metadata tells.
#include <algorithm>
#include <charconv>
#include <set>

#include "cairn/error.h"
#include "checkpoint/dcp_checkpoint.h"

namespace cairn {
namespace {

std::string written_by(const DcpFactsInput& input) {
  const Metadata& metadata = input.metadata;
  std::string version = "torch 2.4 to 2.6";
  if (metadata.version) {
    version = "torch 2.9 or later";
  } else if (metadata.written_as.starts_with("torch.distributed._shard")) {
    version = "torch 1.12 or 1.13";
  } else if (!metadata.storage_meta) {
    version = "torch 2.0 to 2.3";
  } else if (metadata.storage_meta->has_modules) {
    version = "torch 2.7 or 2.8";
  }
  return input.has_manifest ? "cairn, in the form of " + version : version;
}

std::string ranks(const StorageData& storage) {
  std::set<std::uint64_t> ranks;
  for (const std::string& name : storage.files()) {
    if (const auto rank = rank_in_name(name)) ranks.insert(*rank);
  }
  return ranks.empty() ? "unknown" : std::to_string(ranks.size());
}

std::string transforms(const StorageData& storage) {
  std::set<std::string> names;
  std::set<const std::vector<std::string>*> seen;  // equal lists are stored once
  for (std::size_t i = 0; i < storage.size(); ++i) {
    const std::vector<std::string>& list = storage.transforms(i);
    if (seen.insert(&list).second) names.insert(list.begin(), list.end());
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string planner_data(const Metadata& metadata) {
  if (std::holds_alternative<PathMap>(metadata.planner_data)) return "paths";
  return std::holds_alternative<None>(metadata.planner_data) ? "none" : "foreign";
}

}  // namespace

std::optional<std::uint64_t> rank_in_name(std::string_view name) {
  if (!name.starts_with("__")) return std::nullopt;
  std::uint64_t rank = 0;
  const char* const begin = name.data() + 2;
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(begin, end, rank);
  if (error != std::errc() || after == begin || after == end) return std::nullopt;
  const std::string_view rest(after, static_cast<std::size_t>(end - after));
  const bool data = rest.starts_with("_") && rest.ends_with(".distcp");
  return data || rest == ".metadata" ? std::optional(rank) : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> dcp_facts(const DcpFactsInput& input) {
  const Metadata& metadata = input.metadata;
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("format", "PyTorch distributed checkpoint (DCP)");
  facts.emplace_back("written by", written_by(input));
  facts.emplace_back("ranks", ranks(metadata.storage_data));
  if (input.rank_local) {
    facts.emplace_back("metadata",
                       "rank-local, " + std::to_string(input.metadata_files) + " file(s) put together");
  }
  if (metadata.version) facts.emplace_back("metadata version", *metadata.version);
  if (metadata.storage_meta) {
    const StorageMeta& meta = *metadata.storage_meta;
    if (meta.save_id) facts.emplace_back("save id", *meta.save_id);
    if (meta.checkpoint_id) facts.emplace_back("checkpoint id", *meta.checkpoint_id);
  }
  const std::string changed = transforms(metadata.storage_data);
  if (!changed.empty()) facts.emplace_back("transforms", changed);
  facts.emplace_back("planner data", planner_data(metadata));
  if (!metadata.foreign_storage_data.is<None>()) facts.emplace_back("storage data", "foreign");
  facts.emplace_back("checksums", input.has_manifest ? "cairn manifest" : "zip CRC-32 per record");
  return facts;
}

}  // namespace cairn
