// A long step that stops when it is in vain.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "group/steps.h"

namespace cairn {

// Runs `part`, this rank's share of a step whose parts the coordinator gathers, and returns what it returns.
// Meanwhile a thread looks whether the step has failed on another rank; it sets `stop` then, and also when
// `cancelled` is set. A part that throws Error(kCancelled) for another rank's sake becomes a StoppedError.
//
// The coordinator returns when the parts of all others have come, or one of them is a failure: it is the one
// who tells everybody. Groups that cannot look ahead learn of failures when all parts are made.
std::string watched(Steps& steps, const std::atomic<bool>* cancelled, std::atomic<bool>& stop,
                    const std::function<std::string()>& part);

}  // namespace cairn
