// Which blocks of the files a load reads as a whole: those it needs completely, and as many of the others as
// a stated part of the needed bytes allows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace cairn {

// A load reads at most 1 / kOverRead more than it needs, archives and blocks that are read whole together, or
// one block.
inline constexpr std::uint64_t kOverRead = 20;

class WholeBlocks {
 public:
  explicit WholeBlocks(std::size_t files) : files_(files) {}

  // `wanted` bytes lie evenly spread from `begin` to `end` of a file. Error(kLimit) for a stretch that no
  // honest checkpoint has.
  void add(std::size_t file, std::uint64_t begin, std::uint64_t end, std::uint64_t wanted);
  // When all is added. `sizes` are the files'; `needed` is what the load is for; with `all`, every block that
  // is touched.
  void choose(const std::vector<std::uint64_t>& sizes, std::uint64_t needed, bool all);
  std::vector<std::uint64_t> take(std::size_t file) { return std::move(files_[file].chosen); }

 private:
  struct Touched {
    std::uint64_t block;
    std::uint64_t wanted;
  };
  struct File {
    std::vector<Touched> touched;
    std::vector<std::uint64_t> chosen;
  };
  static void merge(std::vector<Touched>& touched);

  std::vector<File> files_;
};

}  // namespace cairn
