#include "group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

// torch.distributed takes no time-out of centuries.
constexpr double kLongest = 7.0 * 24 * 3600;

double seconds_left(const Step& step) {
  const auto now = std::chrono::steady_clock::now();
  if (step.deadline > now + std::chrono::hours(24 * 7)) return kLongest;
  return std::max(0.001, std::chrono::duration<double>(step.deadline - now).count());
}

// What a collective of torch.distributed raises when somebody is late or gone is a RuntimeError with a text.
[[noreturn]] void throw_lost(nb::python_error& raised) {
  if (!raised.matches(PyExc_RuntimeError)) throw_as_error(raised);
  const std::string text = nb::cast<std::string>(nb::str(raised.value()));
  throw Error(ErrorCode::kTimeout, "the ranks could not talk to each other: " + text);
}

template <class F> auto with_group(const F& f) {
  nb::gil_scoped_acquire acquire;
  try {
    return f();
  } catch (nb::python_error& raised) {
    throw_lost(raised);
  }
}

std::vector<std::string> to_strings(nb::handle list) {
  std::vector<std::string> strings;
  for (nb::handle bytes : list) strings.emplace_back(bytes_of(bytes));
  return strings;
}

}  // namespace

PythonGroup::PythonGroup(nb::object exchange)
    : exchange_(std::move(exchange)),
      rank_(nb::cast<int>(exchange_.attr("rank"))),
      size_(nb::cast<int>(exchange_.attr("size"))) {}

PythonGroup::~PythonGroup() {
  nb::gil_scoped_acquire acquire;
  exchange_.reset();
}

std::vector<std::string> PythonGroup::gather(std::string mine, int root, const Step& step) {
  return with_group(
      [&] { return to_strings(exchange_.attr("gather")(to_bytes(mine), root, seconds_left(step))); });
}

std::string PythonGroup::scatter(std::vector<std::string> all, int root, const Step& step) {
  return with_group([&] {
    nb::list parts;
    for (const std::string& part : all) parts.append(to_bytes(part));
    return std::string(bytes_of(nb::object(exchange_.attr("scatter")(parts, root, seconds_left(step)))));
  });
}

std::string PythonGroup::broadcast(std::string bytes, int root, const Step& step) {
  return with_group([&] {
    return std::string(
        bytes_of(nb::object(exchange_.attr("broadcast")(to_bytes(bytes), root, seconds_left(step)))));
  });
}

std::vector<std::string> PythonGroup::all_gather(std::string mine, const Step& step) {
  return with_group(
      [&] { return to_strings(exchange_.attr("all_gather")(to_bytes(mine), seconds_left(step))); });
}

void PythonGroup::barrier(const Step& step) {
  with_group([&] { exchange_.attr("barrier")(seconds_left(step)); });
}

}  // namespace cairn::python
