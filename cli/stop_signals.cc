#include "stop_signals.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

#include "cairn/error.h"

namespace cairn::cli {
namespace {

constexpr std::array kStopping = {SIGINT, SIGTERM, SIGHUP};
std::atomic<bool> stopped = false;
std::atomic<int> stopped_by = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void note_signal(int signal) {
  stopped_by = signal;
  stopped = true;
}

// From here on the first such signal only asks to stop, so that nothing is left behind; a second one ends the
// process as usual.
void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : kStopping) ::sigaction(signal, &action, nullptr);
}

// What the signal would have done at once: shells look at how a process died.
void die_of_signal() {
  constexpr std::string_view kLine = "cairn: interrupted; what was made is removed\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  std::signal(stopped_by, SIG_DFL);
  std::raise(stopped_by);
}

}  // namespace

void run_until_signal(const std::function<void(const std::atomic<bool>& stopped)>& work) {
  catch_signals();
  try {
    work(stopped);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kCancelled && stopped) die_of_signal();
    throw;
  }
}

}  // namespace cairn::cli
