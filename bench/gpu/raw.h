// The machine's own limit between a GPU and files: the same bytes with no format.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "cairn/error.h"
#include "device/device_reader.h"
#include "gpu/state.h"

namespace cairn::bench {

// --- limits: the same bytes with no format ---

inline void drop_caches(const std::string& dir) {
  if (!std::filesystem::exists(dir)) return;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

inline void must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  throw Error(ErrorCode::kIo, what);
}

// Each thread moves its tensors through its ring and its file.
inline double raw_move(const std::shared_ptr<DeviceDriver>& driver, const GpuState& state,
                       const std::string& dir, int flags, bool saves) {
  std::filesystem::create_directories(dir);
  return seconds_of([&] {
    in_threads(kThreads, [&](int thread) {
      const int fd = ::open(fmt::format("{}/raw{}", dir, thread).c_str(), flags | O_CLOEXEC, 0644);
      must(fd >= 0, "open");
      off_t at = 0;
      DeviceReader reader(driver, 0, driver->open_stream(0), {});
      DeviceSender sender(driver, 0, driver->open_stream(0), {});
      for (std::size_t i = static_cast<std::size_t>(thread); i < state.tensors.size(); i += kThreads) {
        // Whole pages, for files that are written past the cache.
        const std::uint64_t bytes = state.tensors[i].view().bytes() / 4096 * 4096;
        TensorView view = TensorView::contiguous(state.tensors[i].view().data, DType::kUInt8,
                                                 {static_cast<std::int64_t>(bytes)});
        view.device = state.tensors[i].view().device;
        if (saves) {
          reader.begin(view);
          for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next()) {
            must(::pwrite(fd, piece.data(), piece.size(), at) == static_cast<ssize_t>(piece.size()),
                 "pwrite");
            at += static_cast<off_t>(piece.size());
          }
          continue;
        }
        for (std::uint64_t done = 0; done < bytes;) {
          const std::uint64_t piece = std::min(sender.most(), bytes - done);
          std::byte* const room = sender.room(piece);
          must(::pread(fd, room, piece, at) == static_cast<ssize_t>(piece), "pread");
          const Shape flat{static_cast<std::int64_t>(piece)};
          TensorView there = TensorView::contiguous(view.data + done, DType::kUInt8, flat);
          there.device = view.device;
          sender.send(TensorView::contiguous(room, DType::kUInt8, flat), there);
          done += piece;
          at += static_cast<off_t>(piece);
        }
      }
      sender.wait();
      if (saves) must(::fdatasync(fd) == 0, "fdatasync");
      ::close(fd);
    });
  });
}

// The best of two, through the page cache and past it; GB/s. Reads start cold on a disk.
inline double raw_rate(const std::shared_ptr<DeviceDriver>& driver, const GpuState& state,
                       const std::string& dir, bool saves, bool disk) {
  double best = std::numeric_limits<double>::infinity();
  for (const int direct : {0, O_DIRECT}) {
    if (direct != 0 && !disk) continue;
    for (int i = 0; i < 2; ++i) {
      if (saves) std::filesystem::remove_all(dir);
      if (disk) drop_caches(dir);
      try {
        best = std::min(best,
                        raw_move(driver, state, dir, (saves ? O_RDWR | O_CREAT : O_RDONLY) | direct, saves));
      } catch (const Error&) {
        if (direct == 0) throw;  // not every file system can be written past its cache
      }
    }
  }
  return static_cast<double>(state.bytes) / 1e9 / best;
}

}  // namespace cairn::bench
