// Checkpoints in a bucket of the loopback server (testing/s3_server.h): clients to save and load them, states
// that say of which version they are, and what must be true of the bucket.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cairn/cairn.h"
#include "cairn/gc.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "storage/s3/bucket.h"
#include "storage/s3/file_system.h"
#include "storage/s3/generations.h"
#include "testing/s3_server.h"
#include "testing/states.h"
#include "trainer_version.h"

namespace cairn {

// Each one is what a process has: its own connections, and no part in the locks of others.
inline std::shared_ptr<s3::Bucket> s3_bucket(const std::string& endpoint, s3::ClientOptions options = {}) {
  s3::Settings& said = options.settings;
  said.endpoint = endpoint;
  said.own_endpoint = said.path_style = said.unsigned_requests = true;
  options.first_delay = std::chrono::milliseconds(1);
  const auto nothing = [](const std::string&) { return std::nullopt; };
  return std::make_shared<s3::Bucket>("bucket", std::move(options), s3::Surroundings{nothing, nothing});
}

inline const std::string kS3Prefix = "run/";

inline std::shared_ptr<FileSystem> s3_files(const std::shared_ptr<s3::Bucket>& bucket) {
  return s3::bucket_folder(bucket, kS3Prefix);
}

// A few KB; `large`: with files of several parts, for one rank or two.
inline StateDict s3_state(int rank, int ranks, int version, bool large, bool by_columns = false) {
  StateDict state = trainer_state(rank, ranks, version, by_columns);
  if (large)
    state.set("large", part_of(numbered({5 << 10, 1 << 10}, version),
                               by_columns ? columns_over(ranks) : rows_over(ranks), rank));
  return state;
}

// The version of all that is loaded; throws when that is none, or a mixture. Nothing when nothing is there.
inline std::optional<int> s3_version(const std::shared_ptr<FileSystem>& files, bool large) {
  const auto metadata = files->stat(kMetadataName);
  if (!metadata || metadata->size == 0) return std::nullopt;
  LoadOptions how;
  how.files = files;
  how.read.verify = Verify::kFull;
  const StateDict state = load_into_new("s3", std::nullopt, how);
  const int version = trainer_version(state);
  if (large) {
    const Value* const found = state.find("large");
    require(found != nullptr && *found == Value(numbered({5 << 10, 1 << 10}, version)),
            fmt::format("'large' is not that of version {}", version));
  }
  return version;
}

// What dead saves left is collected as it would be two hours later: all that the bucket holds then is the
// checkpoint.
inline void require_only_checkpoint(S3Server& server, std::chrono::seconds& ahead, bool large, bool force) {
  const auto before = s3_version(s3_files(s3_bucket(server.endpoint())), large);
  ahead += std::chrono::hours(2);
  server.set_clock_ahead(ahead);
  const auto files = s3_files(s3_bucket(server.endpoint()));
  GcOptions how;
  how.force = force;
  gc(*files, how);
  require(s3_version(files, large) == before, "a clean-up has changed the checkpoint");

  std::set<std::string> live = {std::string(kMetadataName)};
  if (before) {
    const Metadata metadata = read_dcp_metadata(*files->open(kMetadataName));
    for (const std::string& name : metadata.storage_data.files()) live.insert(name);
    if (metadata.storage_meta->extra.find("cairn_manifest") != nullptr)  // it was saved with checksums
      live.insert(manifest_name(*save_id_from(*metadata.storage_meta->save_id)));
  }
  int records = 0;
  for (const std::string& key : server.keys()) {
    const std::string name = key.substr(kS3Prefix.size());
    const auto record = s3::parse_record(name);
    const bool is_metadata = record && record->of == kMetadataName;
    records += is_metadata ? 1 : 0;
    require(is_metadata || live.contains(name), fmt::format("'{}' is left over", key));
    live.erase(name);
  }
  if (!before) live.erase(std::string(kMetadataName));
  require(live.empty(), live.empty() ? "" : fmt::format("'{}' is gone", *live.begin()));
  require(records <= 1, "older records of the metadata are left over");
  require(server.uploads() == 0, "an upload is left over");
}

}  // namespace cairn
