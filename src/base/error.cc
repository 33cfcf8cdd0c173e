#include "cairn/error.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace cairn {
namespace {

// Nothing is added when there is no memory for it: what an error says already is worth more than nothing.
template <class More> void add(const More& more) {
  try {
    more();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kLimit: return "limit";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kConflict: return "conflict";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) { render(); }

Error& Error::in_file(std::string_view path) {
  add([&] {
    if (file_.empty()) file_ = path;
    render();
  });
  return *this;
}

Error& Error::at(std::uint64_t byte_offset) {
  add([&] {
    if (!offset_) offset_ = byte_offset;
    render();
  });
  return *this;
}

Error& Error::of_tensor(std::string_view name) {
  add([&] {
    if (tensor_.empty()) tensor_ = name;
    render();
  });
  return *this;
}

Error& Error::on_rank(int rank) {
  add([&] {
    if (!rank_) rank_ = rank;
    render();
  });
  return *this;
}

Error& Error::while_doing(std::string_view action) {
  add([&] {
    if (doing_.empty()) doing_ = action;
    render();
  });
  return *this;
}

Error& Error::with_errno(int os_error) {
  add([&] {
    if (os_error_ == 0) os_error_ = os_error;
    render();
  });
  return *this;
}

Error& Error::with_cause(std::string_view encoded) {
  add([&] {
    if (cause_.empty()) cause_ = encoded;
  });
  return *this;
}

void Error::render() {
  std::string text;
  if (rank_) text += fmt::format("rank {}: ", *rank_);
  if (!doing_.empty()) text += doing_ + ": ";
  if (!file_.empty()) text += file_ + ": ";
  if (!tensor_.empty()) text += fmt::format("tensor '{}': ", tensor_);
  if (offset_) text += fmt::format("at byte {}: ", *offset_);
  text += message_;
  if (os_error_ != 0) text += fmt::format(": {}", std::strerror(os_error_));
  what_ = fmt::format("{} ({})", text, name_of(code_));
}

namespace {

// One line for each distinct cause, with the ranks it happened on: a thousand ranks that met the same
// full disk are one line, not a thousand.
std::string group_by_cause(std::string_view step, const std::map<int, Error>& failures) {
  std::vector<std::pair<std::string, std::string>> causes;  // text -> ranks
  for (const auto& [rank, error] : failures) {
    std::string text = error.what();
    auto same = causes.begin();
    while (same != causes.end() && same->first != text) ++same;
    if (same == causes.end()) {
      causes.emplace_back(std::move(text), std::to_string(rank));
    } else {
      same->second += "," + std::to_string(rank);
    }
  }
  std::string all = fmt::format("step '{}' failed on {} rank(s)", step, failures.size());
  for (const auto& [text, ranks] : causes) all += fmt::format("; rank {}: {}", ranks, text);
  return all;
}

ErrorCode first_code(const std::map<int, Error>& failures) {
  return failures.empty() ? ErrorCode::kInternal : failures.begin()->second.code();
}

}  // namespace

CheckpointError::CheckpointError(std::string_view step, std::map<int, Error> failures)
    : Error(first_code(failures), group_by_cause(step, failures)),
      step_(step),
      failures_(std::move(failures)) {}

}  // namespace cairn
