#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "text.h"

namespace cairn::cli {
namespace {

constexpr std::size_t kWidth = 30;
constexpr auto kPause = std::chrono::milliseconds(100);

void put(const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

ProgressBar::ProgressBar() : is_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) put("\r\x1b[K");
}

void ProgressBar::show(const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_terminal_ || now < next_ || progress.total == 0) return;
  next_ = now + kPause;
  drawn_ = true;
  const double part = static_cast<double>(progress.done) / static_cast<double>(progress.total);
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - begun_).count());
  const auto full = std::min(kWidth, static_cast<std::size_t>(part * kWidth));
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(progress.done) / seconds);
  put(fmt::format("\r{} [{}{}] {:3.0f} %  {} of {}  {}/s\x1b[K", progress.phase, std::string(full, '#'),
                  std::string(kWidth - full, '.'), 100 * part, human_bytes(progress.done).view(),
                  human_bytes(progress.total).view(), human_bytes(rate).view()));
}

}  // namespace cairn::cli
