#include "format/pickle_input.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "cairn/error.h"

namespace cairn::pickle {

Input::Input(const ByteSource& source)
    : source_(source), size_(source.size()), piece_(source.is_far() ? kFarPiece : kPiece) {
  if (size_ <= piece_) {
    base_ = small_.extend(size_ + kSlack);
    std::memset(base_ + size_, 0, kSlack);
    return;
  }
  void* at = mmap(nullptr, size_ + kSlack, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw Error(ErrorCode::kIo, "cannot reserve memory for the file")
        .with_errno(errno)
        .in_file(source.name());
  }
  base_ = static_cast<std::byte*>(at);
  mapped_ = true;
  if (size_ <= kKeepWhole) madvise(base_, size_ + kSlack, MADV_HUGEPAGE);
}

Input::~Input() {
  if (ahead_.valid()) ahead_.wait();
  if (mapped_) munmap(base_, size_ + kSlack);
}

void Input::read_ahead() {
  const std::uint64_t bytes = std::min(piece_, size_ - loaded_);
  try {
    ahead_ = std::async(std::launch::async, [this, at = loaded_, bytes] {
      source_.read_at(at, {base_ + at, bytes});
    });
  } catch (const std::system_error&) {
    // No thread to be had: the piece is read when it is needed.
  } catch (const std::bad_alloc&) {
    // Nor memory for one.
  }
}

void Input::load_piece() {
  const std::uint64_t bytes = std::min(piece_, size_ - loaded_);
  if (ahead_.valid()) {
    ahead_.get();
  } else {
    source_.read_at(loaded_, {base_ + loaded_, bytes});
  }
  loaded_ += bytes;
  if (loaded_ < size_) read_ahead();
}

const std::byte* Input::bring(const std::byte* keep, const std::byte* p, std::uint64_t bytes) {
  const auto at = static_cast<std::uint64_t>(p - base_);
  if (at < size_) {
    const std::uint64_t wanted = std::min(size_, at + std::min(bytes, size_ - at));
    while (loaded_ < wanted) load_piece();
    const auto kept = static_cast<std::uint64_t>(keep - base_);
    if (size_ > kKeepWhole && kept >= forgotten_ + 2 * piece_) {
      const std::uint64_t until = kept / piece_ * piece_;
      madvise(base_ + forgotten_, until - forgotten_, MADV_DONTNEED);
      forgotten_ = until;
    }
  }
  // The slack is real bytes only at the end; before it, what lies ahead may not have been read yet.
  return loaded_ == size_ ? end() : base_ + loaded_ - kSlack;
}

void Input::restore(std::uint64_t begin, std::uint64_t end) {
  if (begin < forgotten_) source_.read_at(begin, {base_ + begin, std::min(end, forgotten_) - begin});
}

}  // namespace cairn::pickle
