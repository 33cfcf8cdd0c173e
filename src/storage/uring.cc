#include "storage/uring.h"

#ifdef CAIRN_HAVE_LIBURING

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

namespace cairn {
namespace {

constexpr std::size_t kPiece = 1U << 20;
constexpr unsigned kDepth = 32;

class Ring {
 public:
  Ring() : status_(io_uring_queue_init(kDepth, &ring_, 0)) {}
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (good()) io_uring_queue_exit(&ring_);
  }
  bool good() const { return status_ == 0; }

  std::size_t move(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::size_t size,
                   int& os_error);

 private:
  struct Remaining {
    std::size_t begin, end;  // what is still to be moved
  };
  void submit(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::size_t number) {
    const Remaining& piece = pieces_[number];
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto length = static_cast<unsigned>(piece.end - piece.begin);
    if (write) {
      io_uring_prep_write(entry, fd, bytes + piece.begin, length, offset + piece.begin);
    } else {
      io_uring_prep_read(entry, fd, bytes + piece.begin, length, offset + piece.begin);
    }
    io_uring_sqe_set_data64(entry, number);
  }

  io_uring ring_{};
  int status_;
  std::vector<Remaining> pieces_;
};

std::size_t Ring::move(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::size_t size,
                       int& os_error) {
  pieces_.clear();
  for (std::size_t at = 0; at < size; at += kPiece) pieces_.push_back({at, std::min(size, at + kPiece)});
  std::size_t next = 0;
  unsigned in_flight = 0;
  bool ended = false;  // the file did, or something failed: no more pieces are sent
  os_error = 0;
  // Whatever happens, nothing is left in flight: the kernel still writes to memory of pieces it has.
  while (in_flight > 0 || (next < pieces_.size() && !ended)) {
    for (; in_flight < kDepth && next < pieces_.size() && !ended; ++next, ++in_flight) {
      submit(write, fd, offset, bytes, next);
    }
    const int submitted = io_uring_submit_and_wait(&ring_, 1);
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      os_error = -submitted;
      ended = true;
    }
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&ring_, &done) == 0) {
      const auto number = static_cast<std::size_t>(io_uring_cqe_get_data64(done));
      const int result = done->res;
      io_uring_cqe_seen(&ring_, done);
      --in_flight;
      Remaining& piece = pieces_[number];
      if (result > 0) piece.begin += static_cast<std::size_t>(result);
      if (piece.begin == piece.end) continue;
      if (result > 0 || result == -EINTR || result == -EAGAIN) {
        submit(write, fd, offset, bytes, number);
        ++in_flight;
        continue;
      }
      ended = true;
      if (result < 0 && os_error == 0) os_error = -result;
    }
  }
  std::size_t arrived = 0;
  for (const Remaining& piece : pieces_) {
    if (piece.begin > arrived) arrived = piece.begin;
    if (piece.begin != piece.end) break;
  }
  return arrived;
}

class Pool final : public UringPool {
 public:
  explicit Pool(std::unique_ptr<Ring> first) { idle_.push_back(std::move(first)); }

  std::size_t read(int fd, std::uint64_t offset, std::byte* bytes, std::size_t size, int& os_error) override {
    return move(false, fd, offset, bytes, size, os_error);
  }
  std::size_t write(int fd, std::uint64_t offset, const std::byte* bytes, std::size_t size,
                    int& os_error) override {
    return move(true, fd, offset, const_cast<std::byte*>(bytes), size, os_error);
  }

 private:
  std::size_t move(bool write, int fd, std::uint64_t offset, std::byte* bytes, std::size_t size,
                   int& os_error) {
    std::unique_ptr<Ring> ring = take();
    if (ring == nullptr) {
      os_error = EAGAIN;
      return 0;
    }
    const std::size_t moved = ring->move(write, fd, offset, bytes, size, os_error);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(ring));
    return moved;
  }

  std::unique_ptr<Ring> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Ring> ring = std::move(idle_.back());
        idle_.pop_back();
        return ring;
      }
    }
    auto ring = std::make_unique<Ring>();
    return ring->good() ? std::move(ring) : nullptr;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

}  // namespace

std::shared_ptr<UringPool> UringPool::make() {
  auto ring = std::make_unique<Ring>();
  if (!ring->good()) return nullptr;
  return std::make_shared<Pool>(std::move(ring));
}

}  // namespace cairn

#else

namespace cairn {

std::shared_ptr<UringPool> UringPool::make() { return nullptr; }

}  // namespace cairn

#endif
