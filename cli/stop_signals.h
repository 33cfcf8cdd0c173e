// Ctrl-C for commands that have something to clean up.
#pragma once

#include <atomic>
#include <functional>

namespace cairn::cli {

// Runs `work` and gives it a flag that the first SIGINT, SIGTERM or SIGHUP sets; a second one ends the
// process as usual. When the work then ends with Error(kCancelled), the process dies of the signal, as shells
// expect.
void run_until_signal(const std::function<void(const std::atomic<bool>& stopped)>& work);

}  // namespace cairn::cli
