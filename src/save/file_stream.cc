#include "save/file_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/trial.h"
#include "cairn/error.h"

namespace cairn {
namespace {

// Summed and copied while it is in the nearest cache.
constexpr std::size_t kTile = 128U << 10;
// Large enough that system calls do not count, small enough for the processor's second cache.
constexpr std::size_t kWriteTile = 512U << 10;

}  // namespace

FileStream::FileStream(std::unique_ptr<FileWriter> file, const StreamOptions& options)
    : file_(std::move(file)), options_(options), sums_(options.strong_hashes) {
  if (options.buffers < 2 || options.buffer_bytes == 0 || options.buffer_bytes % kDirectAlignment != 0)
    throw Error(ErrorCode::kInvalidArgument, "a stream needs two buffers or more, of whole blocks");
  for (int i = 0; i < options.buffers; ++i) {
    memory_.push_back(Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(options.buffer_bytes)}));
    free_.push_back(i);
  }
  thread_ = std::thread([this] { write_jobs(); });
}

FileStream::~FileStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (!committed_) jobs_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

// The writing thread. After a failure jobs are only taken off the queue.
void FileStream::write_jobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    if (!failure_) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        write(job);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      written_ = job.offset + job.bytes.size();
      if (failure) failure_ = failure;
    }
    if (job.buffer >= 0) free_.push_back(job.buffer);
    --unfinished_;
    changed_.notify_all();
  }
}

void FileStream::write(const Job& job) {
  CAIRN_POINT("stream.before_write");
  try {
    file_->write_at(job.offset, job.bytes);
  } catch (Error& e) {
    const std::uint64_t offset = e.offset().value_or(job.offset);
    const std::lock_guard lock(mutex_);
    const auto after = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const auto& tensor) { return tensor.first > offset; });
    if (after != tensors_.begin()) e.of_tensor(std::prev(after)->second);
    throw;
  }
  CAIRN_POINT("stream.after_write");
}

void FileStream::begin_tensor(std::string_view name) {
  const std::lock_guard lock(mutex_);
  while (tensors_.size() > 1 && tensors_[1].first <= written_) tensors_.pop_front();
  tensors_.emplace_back(position_, name);
}

void FileStream::rethrow() {
  if (failure_) std::rethrow_exception(failure_);
}

void FileStream::submit(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(job);
  ++unfinished_;
  changed_.notify_all();
}

void FileStream::flush() {
  if (filled_ == 0) return;
  const ByteSpan bytes = std::as_const(memory_[static_cast<std::size_t>(filling_)]).bytes().first(filled_);
  submit({position_ - filled_, bytes, std::exchange(filling_, -1)});
  filled_ = 0;
}

void FileStream::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ == 0; });
  rethrow();
}

void FileStream::take_buffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !free_.empty(); });
  rethrow();
  filling_ = free_.back();
  free_.pop_back();
}

void FileStream::append(ByteSpan bytes) {
  checked_add<std::uint64_t>(position_, bytes.size());
  if (bytes.size() < options_.least_direct) return append_copied(bytes);
  if (!file_->prefers_alignment()) return append_through_cache(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if ((address | position_) % kDirectAlignment != 0) return append_copied(bytes);
  const std::size_t whole = bytes.size() / kDirectAlignment * kDirectAlignment;
  append_past_cache(bytes.first(whole));
  append_copied(bytes.subspan(whole));
}

void FileStream::append_past_cache(ByteSpan bytes) {
  flush();
  submit({position_, bytes, -1});
  // The memory is the caller's: whatever happens, the writing thread must be done with it before this
  // returns.
  std::exception_ptr failure;
  try {
    if (options_.checksums) sums_.append(bytes);
  } catch (...) {
    failure = std::current_exception();
  }
  position_ += bytes.size();
  wait_until_idle();
  if (failure) std::rethrow_exception(failure);
}

void FileStream::append_through_cache(ByteSpan bytes) {
  flush();
  if (file_->appends_only()) wait_until_idle();
  const std::size_t most = file_->prefers_long_writes() ? bytes.size() : kWriteTile;
  while (!bytes.empty()) {
    const ByteSpan tile = bytes.first(std::min(bytes.size(), most));
    for (std::size_t at = 0; options_.checksums && at < tile.size(); at += kWriteTile)
      sums_.append(tile.subspan(at, std::min(kWriteTile, tile.size() - at)));
    file_->write_at(position_, tile);
    position_ += tile.size();
    bytes = bytes.subspan(tile.size());
  }
}

void FileStream::append_copied(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> to = room(std::min(bytes.size(), kTile));
    std::memcpy(to.data(), bytes.data(), to.size());
    advance(to.size());
    bytes = bytes.subspan(to.size());
  }
}

std::span<std::byte> FileStream::room(std::size_t most) {
  if (filling_ < 0) take_buffer();
  const std::size_t left = options_.buffer_bytes - filled_;
  return memory_[static_cast<std::size_t>(filling_)].bytes().subspan(filled_, std::min(most, left));
}

void FileStream::advance(std::size_t bytes) {
  if (options_.checksums)
    sums_.append(memory_[static_cast<std::size_t>(filling_)].bytes().subspan(filled_, bytes));
  filled_ += bytes;
  position_ += bytes;
  if (filled_ == options_.buffer_bytes) flush();
}

void FileStream::pad(std::uint64_t bytes) {
  while (bytes > 0) {
    const std::span<std::byte> zeros = room(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kTile)));
    std::fill(zeros.begin(), zeros.end(), std::byte{0});
    advance(zeros.size());
    bytes -= zeros.size();
  }
}

void FileStream::begin_item() {
  if (options_.checksums) sums_.begin_item();
}

std::uint32_t FileStream::end_item() { return options_.checksums ? sums_.end_item() : 0; }

void FileStream::begin_part() {
  if (options_.checksums) sums_.begin_part();
}

std::uint32_t FileStream::end_part() { return options_.checksums ? sums_.end_part() : 0; }

ManifestFile FileStream::commit(std::string name) {
  flush();
  wait_until_idle();
  file_->commit();
  committed_ = true;
  if (options_.checksums) return sums_.finish(std::move(name));
  ManifestFile plain;
  plain.name = std::move(name);
  plain.size = position_;
  return plain;
}

}  // namespace cairn
