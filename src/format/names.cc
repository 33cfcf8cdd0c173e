#include "format/names.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <utility>

#include "cairn/error.h"
#include "format/safetensors.h"

namespace cairn {
namespace {

constexpr std::size_t kMostPartBytes = 255;  // NAME_MAX of every file system we know

}  // namespace

void sort_by_upper_half(PodVector<std::uint64_t>& numbers) {
  constexpr std::size_t kSmall = 4096;
  if (numbers.size() <= kSmall) {
    std::stable_sort(numbers.begin(), numbers.end(),
                     [](std::uint64_t a, std::uint64_t b) { return a >> 32 < b >> 32; });
    return;
  }
  // Radix sort, a byte at a time: a millionfold sort must not take longer than reading the names did.
  PodVector<std::uint64_t> other;
  other.resize(numbers.size());
  for (int shift = 32; shift < 64; shift += 8) {
    std::array<std::size_t, 257> starts{};
    for (const std::uint64_t n : numbers) ++starts[((n >> shift) & 0xff) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const std::uint64_t n : numbers) other[starts[(n >> shift) & 0xff]++] = n;
    std::swap(numbers, other);
  }
}

const char* find_path_problem(std::string_view path) {
  if (path.empty()) return "it is empty";
  if (path.front() == '/') return "it is absolute";
  if (path.find('\0') != std::string_view::npos) return "it contains a NUL byte";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty()) return "it has an empty part";
    if (part == "." || part == "..") return "it has a part that is '.' or '..'";
    begin = end + 1;
  }
  return nullptr;
}

void check_relative_path(std::string_view path, const Limits& limits) {
  if (path.size() > limits.path_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("a file name has {} bytes, more than the {} allowed",
                                               path.size(), limits.path_bytes));
  }
  if (const char* problem = find_path_problem(path)) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the file name '{}' is refused: {}", path, problem));
  }
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end - begin > kMostPartBytes) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("a part of the file name '{}' has {} bytes, more than the {} allowed", path,
                              end - begin, kMostPartBytes));
    }
    begin = end + 1;
  }
}

}  // namespace cairn
