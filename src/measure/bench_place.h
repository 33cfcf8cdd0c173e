// Where a benchmark writes: a directory that is as it was when it is over.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

class BenchPlace {
 public:
  // Error(kConflict) when the directory is there and not empty.
  explicit BenchPlace(const std::string& url);
  BenchPlace(const BenchPlace&) = delete;
  BenchPlace& operator=(const BenchPlace&) = delete;
  ~BenchPlace();

  void keep() { keep_ = true; }  // what is in it stays
  std::string raw() const { return path_ + "/raw"; }
  std::string checkpoint() const { return path_ + "/checkpoint"; }
  void remove_checkpoint() const;

  // The type of its file system ("ext4"), and whether its files take memory.
  std::string file_system() const;
  bool is_in_memory() const;

  // There is room for a checkpoint of so many bytes: Error(kIo) with ENOSPC. There is memory for so many:
  // Error(kLimit).
  void require_room(std::uint64_t bytes) const;
  static void require_memory(std::uint64_t bytes);

 private:
  const std::string path_;
  std::string made_;  // the topmost directory that was not there before; empty: all were
  bool keep_ = false;
};

}  // namespace cairn
