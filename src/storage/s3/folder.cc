#include "storage/s3/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "storage/file_names.h"
#include "storage/s3/lock.h"
#include "storage/s3/objects.h"

namespace cairn::s3 {
namespace {

constexpr std::string_view kProbe = ".cairn-probe.";

std::string shown_as(std::string_view name, std::string_view what) {
  return fmt::format("{}.{:016x}.cairn-partial", name, xxh3_64(as_bytes(what)));
}

// Where they may be listed; who may only read can do without.
std::vector<Upload> uploads_if_allowed(Client& client, const std::string& prefix) {
  try {
    return uploads(client, prefix);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kIo) return {};
    throw;
  }
}

bool can_be_named(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == name.npos;
}

class Looker {
 public:
  Looker(Client& client, const std::string& prefix) : client_(client), prefix_(prefix) {}

  Folder look(std::string_view name, bool with_uploads) {
    const std::string beginning = prefix_ + std::string(name);
    const Listing listing = list(client_, beginning, true);
    const auto dead = client_.server_time() - kAlive;
    for (const Listed& object : listing.objects) take(object, dead);
    for (const std::string& folder : listing.folders) {
      const std::string_view step =
          std::string_view(folder).substr(prefix_.size(), folder.size() - prefix_.size() - 1);
      if (can_be_named(step))
        files_.try_emplace(std::string(step), FileEntry{std::string(step), 0, FileEntry::Kind::kFolder});
    }
    for (const auto& [of, records] : records_) take_records(of, records);
    if (with_uploads) take_uploads(beginning);
    for (auto& [step, entry] : files_) folder_.entries.push_back(std::move(entry));
    return std::move(folder_);
  }

 private:
  void take_uploads(const std::string& beginning) {
    for (const Upload& upload : uploads_if_allowed(client_, beginning)) {
      const std::string of = upload.key.substr(std::min(prefix_.size(), upload.key.size()));
      if (can_be_named(of)) leave({shown_as(of, upload.id), upload.key, upload.id, 0, upload.begun});
    }
  }

  void take(const Listed& object, std::chrono::system_clock::time_point dead) {
    const std::string name = object.key.substr(prefix_.size());
    if (!can_be_named(name)) return;
    if (name.starts_with(kProbe)) {
      if (object.modified <= dead) leave(name, object);
    } else if (const auto lock = lock_of_holder(name)) {
      if (object.modified > dead)
        files_.try_emplace(*lock, FileEntry{*lock, object.size});
      else
        leave(*lock, object);
    } else if (const auto record = parse_record(name)) {
      records_[record->of].push_back(object);
    } else {
      files_[name] = {name, object.size};
      folder_.files[name] = {
          .key = object.key, .size = object.size, .etag = object.etag, .modified = object.modified};
    }
  }

  // The records of one name: which of them it goes by, only itself knows.
  void take_records(const std::string& of, const std::vector<Listed>& records) {
    const auto now = newest_of(client_, prefix_ + of, records);
    if (now) {
      files_[of] = {of, now->size};
      folder_.files[of] = *now;
    }
    for (const Listed& record : records) {
      const bool lives = now && now->chained && parse_record(record.key)->chain == now->chain;
      if (!lives) leave(of, record);
    }
  }

  void leave(const std::string& of, const Listed& object) {
    leave({shown_as(of, object.key), object.key, "", object.size, object.modified});
  }
  void leave(Leftover leftover) {
    files_[leftover.shown] = {leftover.shown, leftover.size};
    folder_.leftovers.push_back(std::move(leftover));
  }

  Client& client_;
  const std::string& prefix_;
  Folder folder_;
  std::map<std::string, FileEntry> files_;
  std::map<std::string, std::vector<Listed>> records_;  // by what they are records of
};

}  // namespace

Folder look_into(Client& client, const std::string& prefix, std::string_view name, bool uploads) {
  return Looker(client, prefix).look(name, uploads);
}

std::optional<Leftover> find_leftover(Client& client, const std::string& prefix, std::string_view shown) {
  if (!is_partial(shown)) return std::nullopt;
  for (Leftover& leftover : look_into(client, prefix, final_name_of(shown)).leftovers)
    if (leftover.shown == shown) return std::move(leftover);
  return std::nullopt;
}

void remove_leftover(Client& client, const Leftover& leftover) {
  if (leftover.upload.empty())
    remove(client, {leftover.key});
  else
    abort_upload(client, leftover.key, leftover.upload);
}

}  // namespace cairn::s3
