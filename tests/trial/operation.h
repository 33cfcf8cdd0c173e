// Something that is done over and over while memory fails.
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "cairn/error.h"

namespace cairn {

class Operation {
 public:
  virtual ~Operation() = default;
  virtual const std::string& name() const = 0;
  virtual void prepare() {}  // before each run, with all the memory there is
  virtual void run() = 0;
  // Afterwards, with all the memory there is: what was promised of a run that succeeded, or failed.
  virtual void require_kept(bool /*succeeded*/) {}
  virtual void forget() {}  // what the run made
  // Whether it is a function of the library's inside, which lets std::bad_alloc pass.
  virtual bool is_internal() const { return false; }

  // Whether it is also tried with no memory at all from some moment on.
  virtual bool has_for_ever() const { return true; }

  // Whether this is what is said when memory runs out.
  virtual bool expects(const Error& e) const {
    if (const auto* all = dynamic_cast<const CheckpointError*>(&e)) {
      for (const auto& [rank, failure] : all->failures())
        if (!expects(failure)) return false;
      return true;
    }
    return e.code() == ErrorCode::kLimit || (e.code() == ErrorCode::kIo && e.os_error() == ENOMEM);
  }
};

using Operations = std::vector<std::unique_ptr<Operation>>;

}  // namespace cairn
