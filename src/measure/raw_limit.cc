#include "measure/raw_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <limits>

#include "base/parallel.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/descriptor.h"
#include "storage/page_cache.h"

namespace cairn {
namespace {

constexpr std::size_t kPiece = 4U << 20;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

[[noreturn]] void fail(const char* what, const std::string& path) {
  const int os_error = errno;
  throw Error(ErrorCode::kIo, what).in_file(path).with_errno(os_error);
}

// Gone with all that is in it on every way out.
class Scratch {
 public:
  explicit Scratch(const std::string& path) : path_(path) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  // What freeing the last files takes is not part of the limit.
  void empty() const {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    const Descriptor directory(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() >= 0) (void)::syncfs(directory.get());
  }
  std::string file(std::size_t number) const { return fmt::format("{}/raw{}", path_, number); }

 private:
  const std::string& path_;
};

class RawMove {
 public:
  RawMove(const Scratch& scratch, std::span<std::byte> memory, const RawWay& way, const RawOptions& options)
      : scratch_(scratch), memory_(memory), way_(way), options_(options) {}

  // False when the file system has no such way.
  bool open_files(int flags) {
    files_.clear();
    for (int i = 0; i < way_.files; ++i) {
      const std::string path = scratch_.file(static_cast<std::size_t>(i));
      files_.emplace_back(::open(path.c_str(), flags | (way_.direct ? O_DIRECT : 0) | O_CLOEXEC, 0644));
      const int file = files_.back().get();
      if (way_.direct && (file < 0 ? errno == EINVAL : lives_in_memory(file))) return false;
      if (file >= 0) continue;
      fail("cannot open a file", path);
    }
    return true;
  }

  void write() {
    each_file([this](std::size_t i) {
      in_pieces(::pwrite, i, "cannot write");
      if (::fdatasync(files_[i].get()) != 0) fail("cannot make the file durable", scratch_.file(i));
    });
  }
  void read() {
    each_file([this](std::size_t i) { in_pieces(::pread, i, "cannot read"); });
  }

 private:
  std::span<std::byte> share(std::size_t i) const {
    const auto files = static_cast<std::size_t>(way_.files);
    const std::size_t blocks = memory_.size() / kDirectAlignment;
    const std::size_t begin = blocks * i / files * kDirectAlignment;
    return memory_.subspan(begin, blocks * (i + 1) / files * kDirectAlignment - begin);
  }

  template <class Move> void in_pieces(const Move& move, std::size_t i, const char* what) {
    const std::span<std::byte> bytes = share(i);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min(kPiece, bytes.size() - at);
      const ssize_t moved = move(files_[i].get(), bytes.data() + at, n, static_cast<off_t>(at));
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) fail(what, scratch_.file(i));
      at += static_cast<std::size_t>(moved);
      if (options_.moved) options_.moved(static_cast<std::uint64_t>(moved));
    }
  }

  void each_file(const std::function<void(std::size_t)>& work) {
    for_each_in_parallel(files_.size(), static_cast<int>(files_.size()),
                         [&](std::size_t i, int) { work(i); });
  }

  const Scratch& scratch_;
  std::span<std::byte> memory_;
  RawWay way_;
  const RawOptions& options_;
  std::vector<Descriptor> files_;
};

void keep_best(RawTime& best, double seconds, const RawWay& way) {
  if (seconds < best.seconds) best = {seconds, way};
}

}  // namespace

std::vector<RawWay> raw_ways() {
  const int cores = core_count();
  std::vector<RawWay> ways;
  for (const int files : {1, std::max(2, cores / 4), std::max(8, cores)})
    for (const bool direct : {false, true}) ways.push_back({files, direct});
  return ways;
}

RawLimit raw_limit(const std::string& directory, std::span<std::byte> memory, const RawOptions& options) {
  const Scratch scratch(directory);
  const double never = std::numeric_limits<double>::infinity();
  RawLimit limit{{never, {}}, {never, {}}, options.reads};
  for (const RawWay& way : raw_ways()) {
    scratch.empty();
    RawMove move(scratch, memory, way, options);
    bool possible = false;
    const double writing = seconds_of([&] {
      possible = move.open_files(O_RDWR | O_CREAT);
      if (possible) move.write();
    });
    if (!possible) continue;
    keep_best(limit.write, writing, way);
    if (!options.reads) continue;
    limit.cold = forget_cached(directory) && limit.cold;
    keep_best(limit.read, seconds_of([&] {
                move.open_files(O_RDONLY);
                move.read();
              }),
              way);
  }
  return limit;
}

}  // namespace cairn
