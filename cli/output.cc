#include "output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cairn/error.h"

namespace cairn::cli {

Output::Output(int fd) : fd_(fd), buffer_(new char[kCapacity]) {
  is_terminal_ = isatty(fd) == 1;
  if (!is_terminal_) return;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  colours_ = (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
             std::string_view(terminal) != "dumb";
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns_ = size.ws_col;
}

void Output::slow_text(std::string_view s) {
  while (!s.empty()) {
    if (used_ == kCapacity) flush();
    const std::size_t part = std::min(s.size(), kCapacity - used_);
    std::memcpy(buffer_.get() + used_, s.data(), part);
    used_ += part;
    s.remove_prefix(part);
  }
}

void Output::repeat(char c, std::size_t count) {
  while (count > 0) {
    if (used_ == kCapacity) flush();
    const std::size_t part = std::min(count, kCapacity - used_);
    std::memset(buffer_.get() + used_, c, part);
    used_ += part;
    count -= part;
  }
}

void Output::number(std::uint64_t n) {
  const fmt::format_int digits(n);
  text({digits.data(), digits.size()});
}

void Output::number(std::int64_t n) {
  const fmt::format_int digits(n);
  text({digits.data(), digits.size()});
}

void Output::flush() {
  std::size_t done = 0;
  while (done < used_) {
    const ssize_t n = ::write(fd_, buffer_.get() + done, used_ - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      started_ = true;
    } else if (errno != EINTR) {
      const int reason = errno;
      used_ = 0;
      if (reason == EPIPE) throw ReaderGone{};
      throw Error(ErrorCode::kIo, "cannot write to standard output").with_errno(reason);
    }
  }
  used_ = 0;
}

void Output::style(Style style) {
  if (!colours_) return;
  switch (style) {
    case Style::kPlain: return text("\x1b[0m");
    case Style::kBold: return text("\x1b[1m");
    case Style::kDim: return text("\x1b[2m");
    case Style::kWarning: return text("\x1b[33m");
  }
}

}  // namespace cairn::cli
