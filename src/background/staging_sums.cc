#include "background/staging_sums.h"

#include <algorithm>

#include "base/hash.h"
#include "base/parallel.h"
#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::size_t kSummedPiece = 4U << 20;  // enough of them that all threads have work

}  // namespace

void StagingSums::cut(ByteSpan bytes, std::size_t tensor) {
  for (std::size_t at = 0; at < bytes.size(); at += kSummedPiece)
    pieces_.push_back({bytes.subspan(at, std::min(kSummedPiece, bytes.size() - at)), tensor});
}

void StagingSums::take(const StagingWork& work) {
  for (std::size_t i = 0; i < work.layout.tensors.size(); ++i) {
    const PlaceMemory& memory = work.memory[work.layout.tensors[i].place];
    if (memory.block == nullptr) continue;
    names_.push_back(work.layout.tensors[i].name);
    cut(work.layout.bytes_of_copy(i, memory.data), names_.size() - 1);
  }
  for_each_in_parallel(pieces_.size(), threads_,
                       [&](std::size_t i, int) { pieces_[i].sum = xxh3_64(pieces_[i].bytes); });
}

void StagingSums::require_same() const {
  for_each_in_parallel(pieces_.size(), threads_, [&](std::size_t i, int) {
    if (xxh3_64(pieces_[i].bytes) == pieces_[i].sum) return;
    throw Error(ErrorCode::kCorrupt,
                "the snapshot has changed in memory since it was taken, by itself or by somebody who wrote "
                "where he must not; nothing of this save is kept: save again, and have the machine's memory "
                "looked at if it happens twice")
        .of_tensor(names_[pieces_[i].tensor])
        .while_doing("comparing the snapshot with its checksums");
  });
}

}  // namespace cairn
