#include "save/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/source.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "storage/write_file.h"

namespace cairn {
namespace {

// Of saves that die while they replace one and the same checkpoint.
constexpr int kMostClaims = 10000;

void remove_quietly(FileSystem& files, const std::string& name) noexcept {
  try {
    files.remove(name);
  } catch (...) {
    // It is gone, or the next save or `cairn gc` finds it.
  }
}

// The same on every machine that looks at the same checkpoint, unlike its version_of(), and another one for
// every checkpoint that has been here: its save id is among the bytes.
std::string name_for(const FileSystem& files, const std::string& metadata, const std::string& expected) {
  try {
    const std::string bytes = read_all(*files.open(metadata));
    return fmt::format("{:08x}-{:x}", crc32(as_bytes(bytes)), bytes.size());
  } catch (const Error& e) {
    if (files.version_of(metadata) != expected) throw another_save_came_first(files, metadata);
    // A link that is not followed, or somebody's own file: so for everybody. Not what may be read next time.
    if (e.os_error() == ELOOP || e.os_error() == EACCES) return "unreadable";
    throw;
  }
}

// The claims of those that want to replace one checkpoint: 1, 2, 3. None goes before that checkpoint does,
// but for one, of a save that was alone when it looked, and for those that a clean-up found dead: when it is
// killed, or the power goes, there are gaps.
class Claims {
 public:
  Claims(FileSystem& files, const Replacement& mine)
      : files_(files), mine_(mine), old_(name_for(files, metadata_name(mine.rank), mine.expected)) {}

  // Returns the number that was got.
  int take() {
    for (int number = last(); number < kMostClaims;) {
      ++number;
      try {
        write_file(files_, name(number), to_string(mine_.save), {.durable = false, .in_place = true});
        return number;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kConflict) throw;
      }
    }
    throw Error(ErrorCode::kConflict, "too many saves have died here: `cairn gc` removes what they left")
        .in_file(files_.root());
  }

  // The highest number that is taken, or 0.
  int last() const {
    int highest = 0;
    for (const FileEntry& entry : files_.list()) {
      const auto parsed = parse_dcp_name(entry.name);
      if (parsed && parsed->kind == DcpName::Kind::kClaim && parsed->rank == mine_.rank &&
          parsed->old == old_ && !is_partial(entry.name))
        highest = std::max(highest, parsed->number);
    }
    return highest;
  }

  // Takes the holder's metadata away. A claim that says nothing yet is not whole: whoever makes it will find
  // that he was passed.
  void pass(int number) {
    try {
      const auto holder = save_id_from(read_all(*files_.open(name(number))));
      if (holder) files_.remove(pending_metadata_name(*holder, mine_.rank));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) throw;  // it has given up
    }
  }

  // The checkpoint is replaced.
  void remove_up_to(int last) noexcept {
    try {
      for (int number = 1; number <= last; ++number) remove_quietly(files_, name(number));
    } catch (...) {
      // There is no memory for a name.
    }
  }

  std::string name(int number) const { return claim_name(old_, number, mine_.rank); }

 private:
  FileSystem& files_;
  const Replacement& mine_;
  std::string old_;
};

// Returns when the new metadata has its place.
void take_the_place(FileSystem& files, const Replacement& mine, const std::string& pending) {
  const std::string metadata = metadata_name(mine.rank);
  Claims claims(files, mine);
  const int number = claims.take();
  try {
    CAIRN_POINT("claim.taken");
    if (claims.last() > number) throw another_save_came_first(files, metadata);
    for (int other = 1; other < number; ++other) claims.pass(other);
    CAIRN_POINT("claim.passed");
    if (files.version_of(metadata) != mine.expected) throw another_save_came_first(files, metadata);
    CAIRN_POINT("claim.before_rename");
    check_deadline(mine.deadline);
    files.rename(pending, metadata);
  } catch (const Error& e) {
    // By us, and only the answer was lost; by somebody who claimed before us and was faster, or after us.
    const bool replaced = files.version_of(metadata) != mine.expected;
    if (replaced && read_all(*files.open(metadata)) == mine.bytes) return claims.remove_up_to(number);
    if (replaced || (mine.lock != nullptr && mine.lock->is_exclusive()))
      remove_quietly(files, claims.name(number));
    if (replaced || e.code() == ErrorCode::kNotFound) throw another_save_came_first(files, metadata);
    throw;
  }
  CAIRN_POINT("claim.renamed");
  claims.remove_up_to(number);
}

}  // namespace

void check_deadline(std::chrono::steady_clock::time_point deadline) {
  if (std::chrono::steady_clock::now() <= deadline) return;
  // The other ranks have given up, and somebody may be saving again.
  throw Error(ErrorCode::kTimeout, "the save's deadline passed before it could be published");
}

Error another_save_came_first(const FileSystem& files, const std::string& metadata) {
  return Error(ErrorCode::kConflict,
               "another save has published this checkpoint meanwhile: two jobs save under one id")
      .in_file(files.root() + "/" + metadata);
}

void replace_by_claim(FileSystem& files, const Replacement& mine) {
  const std::string pending = pending_metadata_name(mine.save, mine.rank);
  try {
    write_file(files, pending, mine.bytes, {.durable = mine.durable, .in_place = true});
    CAIRN_POINT("claim.pending");
    take_the_place(files, mine, pending);
  } catch (...) {
    remove_quietly(files, pending);
    throw;
  }
}

}  // namespace cairn
