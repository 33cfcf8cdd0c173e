// What the files of cairn._engine share: text, errors, and work that Ctrl-C can stop.
#pragma once

// All casters stand here: one that a file forgets is another caster of the same name, and the linker takes
// either.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"

namespace nb = nanobind;

namespace cairn::python {

// Names of files and tensors may hold any bytes; what is no UTF-8 becomes U+FFFD.
nb::object to_str(std::string_view text);
std::string to_text(nb::handle text);
nb::bytes to_bytes(std::string_view bytes);
std::string_view bytes_of(nb::handle bytes);  // valid as long as the object
nb::tuple to_tuple(const Shape& shape);
Shape to_shape(nb::handle numbers);  // of a tuple or list of ints
DType to_dtype(nb::handle name);     // "float32"

// cairn.Error, and how C++'s errors become it. CheckpointError has `failures` too, {rank: Error}.
void bind_errors(nb::module_& m);
// A Python exception as an Error that can travel between ranks, the exception itself with it.
Error error_of(nb::handle exception);
[[noreturn]] void throw_as_error(nb::python_error& raised);

// Tells the logger "cairn", which is Python's to show or not.
void log_warnings(const std::vector<std::string>& warnings);

// Calls f with the GIL held; what it raises becomes an Error.
template <class F> auto with_python(const F& f) {
  nb::gil_scoped_acquire acquire;
  try {
    return f();
  } catch (nb::python_error& raised) {
    throw_as_error(raised);
  }
}

// As long as it is there, and with the GIL held, Python does not look for cycles. Where as many objects are
// made as a checkpoint has tensors, it would go through all there are, again and again, for half of the time.
class WithoutCollector {
 public:
  WithoutCollector();
  ~WithoutCollector();
  WithoutCollector(const WithoutCollector&) = delete;
  WithoutCollector& operator=(const WithoutCollector&) = delete;
};

// Keeps a Python object alive for threads that do not hold the GIL.
std::shared_ptr<void> owner_of(nb::object object);

// The thread of Python's that asked for some work and waits for it.
//
// The work has a thread of its own, without the GIL. What it asks of the caller's own code runs where the
// caller is, who may rely on what is the thread's: its current device and stream, whether gradients are kept.
class Caller {
 public:
  // With the GIL held: does the work, and whatever it calls meanwhile. When Python has a signal to handle
  // that raises (Ctrl-C), `cancelled` becomes true, and the exception is raised as soon as the work has
  // ended.
  void run(const std::function<void()>& work, std::atomic<bool>& cancelled);

  // From the work: f() by the caller, with the GIL. What it raises becomes an Error; KeyboardInterrupt is
  // also raised when the work has ended.
  void call(const std::function<void()>& f);

 private:
  struct Wish {
    const std::function<void()>& f;
    bool done = false;
    std::exception_ptr failure = nullptr;
  };
  void serve();
  void grant(Wish& wish);
  void keep(const nb::python_error& interrupt);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wish*> wishes_;
  bool done_ = false;
  std::atomic<bool>* cancelled_ = nullptr;
  std::unique_ptr<nb::python_error> interrupt_;
};

// For work that asks nothing of its caller.
inline void run_interruptibly(const std::function<void()>& work, std::atomic<bool>& cancelled) {
  Caller().run(work, cancelled);
}

// One for each file bind_*.cc.
void bind_checkpoint(nb::module_& m);
void bind_plain(nb::module_& m);
void bind_convert(nb::module_& m);
void bind_group(nb::module_& m);
void bind_state(nb::module_& m);
void bind_save(nb::module_& m);
void bind_load(nb::module_& m);
void bind_storage(nb::module_& m);
void bind_open(nb::module_& m);
void bind_places(nb::module_& m);
void bind_urls(nb::module_& m);

}  // namespace cairn::python
