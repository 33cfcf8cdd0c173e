// One open file and the ways its bytes can take.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cairn/storage.h"
#include "storage/descriptor.h"
#include "storage/uring.h"

namespace cairn {

// May be used by many threads at once. Errors name the file, the offset and errno.
class FileChannel {
 public:
  // `io` is what was asked for; ways the file does not support are not taken.
  FileChannel(Descriptor fd, std::string path, IoPath io, std::shared_ptr<UringPool> rings);
  FileChannel(const FileChannel&) = delete;
  FileChannel& operator=(const FileChannel&) = delete;

  // For a file that is only read: goes through the page cache if that holds most of it already.
  void use_cache_if_warm(std::uint64_t size);

  int descriptor() const { return buffered_.get(); }
  const std::string& path() const { return path_; }
  bool is_in_memory() const { return in_memory_; }  // the file lives in the page cache and nowhere else
  bool is_direct() const { return use_direct_; }    // aligned transfers go past the page cache

  // Error(kCorrupt) when the file ends before `to` is full.
  void read(std::uint64_t offset, std::span<std::byte> to);
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void close();  // Error(kIo); nothing may be called afterwards

 private:
  std::size_t aligned_part(const void* address, std::uint64_t offset, std::size_t size) const;
  std::size_t read_direct(std::uint64_t offset, std::span<std::byte> to);
  std::size_t write_direct(std::uint64_t offset, std::span<const std::byte> bytes);
  bool goes_on(const char* what, std::uint64_t offset, std::size_t moved, int os_error);
  [[noreturn]] void fail(const char* what, std::uint64_t offset, int os_error) const;

  Descriptor buffered_;
  bool in_memory_;
  Descriptor direct_;
  std::atomic<bool> use_direct_ = false;
  std::string path_;
  std::shared_ptr<UringPool> rings_;
};

}  // namespace cairn
