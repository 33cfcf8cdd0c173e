#include "reading/whole_blocks.h"

#include <algorithm>

#include "cairn/error.h"
#include "format/manifest.h"

namespace cairn {
namespace {

constexpr std::uint64_t kMostBlocks = 1ULL << 24;  // of one stretch: 16 TiB

// An estimate is enough, where not everything is wanted.
std::uint64_t share_of(std::uint64_t wanted, std::uint64_t part, std::uint64_t whole) {
  if (wanted >= whole) return part;
  return static_cast<std::uint64_t>(static_cast<double>(wanted) / static_cast<double>(whole) *
                                    static_cast<double>(part));
}

}  // namespace

void WholeBlocks::add(std::size_t file, std::uint64_t begin, std::uint64_t end, std::uint64_t wanted) {
  if (begin >= end) return;
  const std::uint64_t last = (end - 1) / kManifestBlock;
  if (last - begin / kManifestBlock >= kMostBlocks) {
    throw Error(ErrorCode::kLimit, "one stored item is larger than 16 TiB");
  }
  std::vector<Touched>& touched = files_[file].touched;
  for (std::uint64_t block = begin / kManifestBlock; block <= last; ++block) {
    const std::uint64_t from = std::max(begin, block * kManifestBlock);
    const std::uint64_t part = std::min(end - from, (block + 1) * kManifestBlock - from);
    const std::uint64_t share = share_of(wanted, part, end - begin);
    if (!touched.empty() && touched.back().block == block) {
      touched.back().wanted += share;
    } else {
      touched.push_back({block, share});
    }
  }
}

void WholeBlocks::merge(std::vector<Touched>& touched) {
  std::sort(touched.begin(), touched.end(),
            [](const Touched& a, const Touched& b) { return a.block < b.block; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (kept > 0 && touched[kept - 1].block == touched[i].block) {
      touched[kept - 1].wanted += touched[i].wanted;
    } else {
      touched[kept++] = touched[i];
    }
  }
  touched.resize(kept);
}

void WholeBlocks::choose(const std::vector<std::uint64_t>& sizes, std::uint64_t needed, bool all) {
  struct Candidate {
    std::uint64_t missing;
    std::size_t file;
    std::uint64_t block;
  };
  std::vector<Candidate> candidates;
  std::uint64_t wanted = 0;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    merge(files_[file].touched);
    for (const Touched& touched : files_[file].touched) {
      const std::uint64_t length = std::min(kManifestBlock, sizes[file] - touched.block * kManifestBlock);
      const std::uint64_t here = std::min(touched.wanted, length);
      wanted += here;
      candidates.push_back({length - here, file, touched.block});
    }
    files_[file].touched = {};
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.missing < b.missing; });
  // What lies around the elements is read anyway and counts. Where that is more than the share already, the
  // items are small and lie close together: what little is missing between them is not worth less safety.
  const std::uint64_t around = wanted > needed ? wanted - needed : 0;
  const std::uint64_t share = wanted / kOverRead;
  std::uint64_t left = std::max(kManifestBlock, share > around ? share - around : share / 4);
  for (const Candidate& candidate : candidates) {
    if (!all && candidate.missing > left) break;
    if (!all) left -= candidate.missing;
    files_[candidate.file].chosen.push_back(candidate.block);
  }
  for (File& file : files_) std::sort(file.chosen.begin(), file.chosen.end());
}

}  // namespace cairn
