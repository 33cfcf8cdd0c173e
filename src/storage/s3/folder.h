// What lies in a folder of a bucket: files, and what dead writers left of them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"
#include "storage/s3/client.h"

namespace cairn::s3 {

// Something that is no file, shown under a name that is_partial(): an upload that was begun, a record of an
// object that is gone, a lock whose holder is dead, a probe.
struct Leftover {
  std::string shown;
  std::string key;
  std::string upload = {};  // empty: an object
  std::uint64_t size = 0;
  std::chrono::system_clock::time_point modified;
};

struct Folder {
  std::vector<FileEntry> entries;  // by name, with the leftovers
  std::vector<Leftover> leftovers;
};

// `prefix` is empty or ends in a slash. With a `name`, only what begins with it.
Folder look_into(Client& client, const std::string& prefix, std::string_view name = "");
std::optional<Leftover> find_leftover(Client& client, const std::string& prefix, std::string_view shown);
void remove_leftover(Client& client, const Leftover& leftover);

}  // namespace cairn::s3
