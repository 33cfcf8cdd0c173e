// A FileSystem that fails when told to, for tests: every promise about errors is tried through it.
//
//   auto faults = std::make_shared<Faults>();
//   faults->fail({.nth = 7, .os_error = ENOSPC});         // the seventh call of any kind
//   auto files = faulty_file_system(memory_file_system(), faults);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"

namespace cairn {

enum class FileCall : std::uint8_t {
  kCreate,
  kWrite,
  kCommit,
  kOpen,
  kRead,
  kStat,
  kList,
  kRename,
  kRemove,
  kSync,
  kLock
};
std::string_view name_of(FileCall call);

struct Fault {
  std::optional<FileCall> call = std::nullopt;  // only calls of this kind are counted; any kind when absent
  std::uint64_t nth = 1;                        // which of them, from 1 on
  bool for_ever = false;                        // and all that follow
  int os_error = 5;                             // EIO
  bool halfway = false;                         // reads and writes move half of the bytes first
  bool after = false;                           // the call does its work, and fails then: its reply is lost
  std::chrono::microseconds delay{0};
  bool only_delay = false;  // late, but right
};

// What to do, and what was done. May be used by many threads at once.
class Faults {
 public:
  struct Call {
    FileCall call;
    std::string name;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  void fail(const Fault& fault);
  void clear();  // no more faults; the count begins anew

  // What free_space() says; nullopt: what it really is.
  void set_room(std::optional<std::uint64_t> bytes);
  std::optional<std::uint64_t> room() const;

  std::vector<Call> trace() const;  // every call since the last clear()
  std::uint64_t fired() const;      // how many calls met a fault

  // For the file system: notes the call and returns the fault it meets.
  std::optional<Fault> meet(const Call& call);

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Fault, std::uint64_t>> faults_;  // and how many calls each has counted
  std::vector<Call> trace_;
  std::uint64_t fired_ = 0;
  std::optional<std::uint64_t> room_;
};

std::unique_ptr<FileSystem> faulty_file_system(std::unique_ptr<FileSystem> inner,
                                               std::shared_ptr<Faults> faults);

}  // namespace cairn
