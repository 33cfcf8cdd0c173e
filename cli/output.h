// Standard output: one large buffer, few writes, and what the terminal can do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace cairn::cli {

// The reader went away (`| head`). No error: it has what it wanted.
struct ReaderGone {};

// Used by one thread. Nothing is written before the buffer is full or flush() is called.
class Output {
 public:
  explicit Output(int fd);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void text(std::string_view s) {
    if (s.size() > kCapacity - used_) return slow_text(s);
    std::memcpy(buffer_.get() + used_, s.data(), s.size());
    used_ += s.size();
  }
  void put(char c) {
    if (used_ == kCapacity) flush();
    buffer_[used_++] = c;
  }
  void repeat(char c, std::size_t count);
  void number(std::uint64_t n);
  void number(std::int64_t n);

  // `size` bytes (at most 64 KiB) for the caller to write in place, all of them.
  char* room(std::size_t size) {
    if (size > kCapacity - used_) flush();
    used_ += size;
    return buffer_.get() + (used_ - size);
  }

  // Throws ReaderGone, or Error(kIo).
  void flush();
  void discard() { used_ = 0; }              // forgets what is not written yet
  bool started() const { return started_; }  // some bytes are out

  // Escape sequences that change the look of what follows; nothing when the output takes no colour.
  enum class Style { kPlain, kBold, kDim, kWarning };
  void style(Style style);

  std::size_t columns() const { return columns_; }  // of the terminal; 80 when it is none
  bool is_terminal() const { return is_terminal_; }

 private:
  static constexpr std::size_t kCapacity = 256 << 10;
  void slow_text(std::string_view s);

  int fd_;
  bool started_ = false;
  bool is_terminal_ = false;
  bool colours_ = false;
  std::size_t columns_ = 80;
  std::size_t used_ = 0;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace cairn::cli
