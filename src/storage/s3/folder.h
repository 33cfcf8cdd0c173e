// What lies in a folder of a bucket: files, and what dead writers left of them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"
#include "storage/s3/client.h"
#include "storage/s3/generations.h"

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
  std::map<std::string, Generation, std::less<>> files;  // what is behind those of `entries` that are files
};

// `prefix` is empty or ends in a slash. With a `name`, only what begins with it. Who only reads files does
// without the uploads that were begun.
Folder look_into(Client& client, const std::string& prefix, std::string_view name = "", bool uploads = true);
std::optional<Leftover> find_leftover(Client& client, const std::string& prefix, std::string_view shown);
void remove_leftover(Client& client, const Leftover& leftover);

}  // namespace cairn::s3
