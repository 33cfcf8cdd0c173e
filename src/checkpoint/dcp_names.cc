#include "checkpoint/dcp_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/random.h"
#include "cairn/storage.h"
#include "storage/file_names.h"

namespace cairn {
namespace {

constexpr std::string_view kDataSuffix = ".distcp";
constexpr std::string_view kMetadataSuffix = ".metadata";
constexpr std::string_view kManifestPart = ".cairn-manifest.";
constexpr std::string_view kClaimPart = ".cairn-claim.";

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// A number without sign or leading zeros, as names have them.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || number < 0 || text.front() == '-' || (text.front() == '0' && digits > 1))
    return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

std::string rank_prefix(std::optional<int> rank) { return rank ? fmt::format("__{}", *rank) : ""; }

}  // namespace

std::string data_file_name(int rank, int number, const SaveId& save) {
  return fmt::format("__{}_{}.{}{}", rank, number, to_string(save), kDataSuffix);
}

std::string manifest_name(const SaveId& save, std::optional<int> rank) {
  return rank_prefix(rank) + std::string(kManifestPart) + to_string(save);
}

std::string metadata_name(std::optional<int> rank) { return rank_prefix(rank) + std::string(kMetadataName); }

std::string pending_metadata_name(const SaveId& save, std::optional<int> rank) {
  return metadata_name(rank) + "." + to_string(save);
}

std::string next_metadata_name(int rank, int ranks, const SaveId& found, const SaveId& attempt) {
  return fmt::format("{}.{}-{}-{}", metadata_name(rank), ranks, to_string(found), to_string(attempt));
}

std::string claim_name(std::string_view old, int number, std::optional<int> rank) {
  return fmt::format("{}{}{}.{}", rank_prefix(rank), kClaimPart, old, number);
}

std::string lock_name(std::optional<int> rank) { return rank_prefix(rank) + std::string(kLockName); }

SaveId random_save_id() {
  SaveId id;
  fill_randomly(id);
  return id;
}

std::optional<SaveId> save_id_from(std::string_view text) {
  SaveId id;
  if (text.size() != 2 * id.size()) return std::nullopt;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const auto digit = [&](std::size_t at) -> int {
      const char c = text[at];
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    const int high = digit(2 * i), low = digit(2 * i + 1);
    if (high < 0 || low < 0) return std::nullopt;
    id[i] = static_cast<std::byte>(high * 16 + low);
  }
  return id;
}

std::optional<DcpName> parse_dcp_name(std::string_view name) {
  const std::string final_name = final_name_of(name);
  std::string_view rest = final_name;
  DcpName parsed;
  if (take_prefix(rest, "__")) {
    parsed.rank = take_number(rest);
    if (!parsed.rank) return std::nullopt;
  }
  if (parsed.rank && take_prefix(rest, "_")) {
    if (!take_number(rest) || !rest.ends_with(kDataSuffix)) return std::nullopt;
    rest.remove_suffix(kDataSuffix.size());
    if (rest.empty()) return parsed;
    if (!take_prefix(rest, ".")) return std::nullopt;
    parsed.save = save_id_from(rest);
    return parsed.save ? std::optional(parsed) : std::nullopt;
  }
  if (take_prefix(rest, kManifestPart)) {
    parsed.kind = DcpName::Kind::kManifest;
    parsed.save = save_id_from(rest);
    return parsed.save ? std::optional(parsed) : std::nullopt;
  }
  if (rest == kMetadataSuffix) {
    parsed.kind = DcpName::Kind::kMetadata;
    return parsed;
  }
  if (take_prefix(rest, ".metadata.")) {
    parsed.kind = DcpName::Kind::kPendingMetadata;
    parsed.save = save_id_from(rest);
    if (parsed.save) return parsed;
    parsed.kind = DcpName::Kind::kNextMetadata;
    const auto ranks = rest.empty() ? std::nullopt : take_number(rest);
    if (!parsed.rank || !ranks || *ranks <= *parsed.rank || !take_prefix(rest, "-")) return std::nullopt;
    const auto found = save_id_from(rest.substr(0, rest.find('-')));
    const auto attempt = save_id_from(rest.substr(std::min(rest.find('-') + 1, rest.size())));
    if (!found || !attempt) return std::nullopt;
    parsed.number = *ranks;
    parsed.found = *found;
    parsed.attempt = *attempt;
    return parsed;
  }
  if (take_prefix(rest, kClaimPart)) {
    parsed.kind = DcpName::Kind::kClaim;
    const std::size_t dot = rest.find('.');
    if (dot == rest.npos) return std::nullopt;
    parsed.old = rest.substr(0, dot);
    rest.remove_prefix(dot + 1);
    const auto number = rest.empty() ? std::nullopt : take_number(rest);
    if (!number || !rest.empty()) return std::nullopt;
    parsed.number = *number;
    return parsed;
  }
  if (rest == kLockName) {
    parsed.kind = DcpName::Kind::kLock;
    return parsed;
  }
  return std::nullopt;
}

}  // namespace cairn
