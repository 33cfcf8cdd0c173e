// "[0:16, ::2, -1]": the text of a selection, read as Python reads an index.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/checked.h"
#include "cairn/selection.h"

namespace cairn {
namespace {

constexpr std::size_t kLongestText = 4096;

// One item between commas, before the shape is known to it.
struct Item {
  enum class Kind { kIndex, kSlice, kRest } kind = Kind::kIndex;
  std::optional<std::int64_t> start, stop, step;  // kIndex: start alone
  std::size_t at = 0;                             // where it begins in the text
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Item> items() {
    skip_space();
    const bool bracket = take('[');
    std::vector<Item> items;
    for (;;) {
      items.push_back(item());
      if (!take(',')) break;
      if (done() || peek() == ']') break;  // a comma after the last item
    }
    if (bracket && !take(']')) fail("expected ',' or ']'");
    if (!done()) fail(bracket ? "expected nothing after the ']'" : "expected ',' or the end");
    return items;
  }

  [[noreturn]] static void fail_at(std::size_t at, const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "selection: " + what).at(at);
  }

 private:
  Item item() {
    Item item;
    item.at = at_;
    if (text_.substr(at_).starts_with("...")) {
      at_ += 3;
      skip_space();
      item.kind = Item::Kind::kRest;
      return item;
    }
    item.start = number();
    if (!take(':')) {
      if (!item.start) fail("expected a number, a slice or '...'");
      return item;
    }
    item.kind = Item::Kind::kSlice;
    item.stop = number();
    if (take(':')) {
      const std::size_t at = at_;
      item.step = number();
      if (item.step && *item.step < 1) fail_at(at, "the step must be at least 1");
    }
    return item;
  }

  std::optional<std::int64_t> number() {
    const std::size_t begin = at_;
    const bool negative = !done() && peek() == '-';
    if (negative) ++at_;
    const std::size_t digits = at_;
    std::int64_t value = 0;
    for (; !done() && peek() >= '0' && peek() <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, peek() - '0', &value)) {
        fail_at(begin, "the number does not fit in 64 bits");
      }
    }
    if (at_ == digits) {
      if (negative) fail("expected a digit");
      return std::nullopt;
    }
    skip_space();
    return negative ? -value : value;
  }

  bool take(char c) {
    if (done() || peek() != c) return false;
    ++at_;
    skip_space();
    return true;
  }
  void skip_space() {
    while (!done() && (peek() == ' ' || peek() == '\t')) ++at_;
  }
  bool done() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  [[noreturn]] void fail(const std::string& what) const { fail_at(at_, what); }

  std::string_view text_;
  std::size_t at_ = 0;
};

// A bound of a slice as Python takes it: counted from the end when negative, then moved into the tensor.
std::int64_t clamp_bound(std::int64_t bound, std::int64_t size) {
  if (bound < 0) bound = bound < -size ? 0 : bound + size;
  return std::min(bound, size);
}

Range range_of(const Item& item, std::int64_t size) {
  if (item.kind == Item::Kind::kIndex) {
    const std::int64_t index = *item.start;
    if (index < -size || index >= size) {
      Parser::fail_at(item.at, fmt::format("index {} is outside a dimension of {} elements", index, size));
    }
    return {index < 0 ? index + size : index, 1, 1};
  }
  const std::int64_t step = item.step.value_or(1);
  const std::int64_t start = clamp_bound(item.start.value_or(0), size);
  const std::int64_t stop = clamp_bound(item.stop.value_or(size), size);
  const std::int64_t distance = std::max<std::int64_t>(stop - start, 0);
  return {start, distance / step + (distance % step != 0 ? 1 : 0), step};
}

}  // namespace

Selection parse_selection(std::string_view text, const Shape& shape) {
  if (text.size() > kLongestText) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("selection: {} characters, at most {} are read", text.size(), kLongestText));
  }
  if (text.find_first_not_of(" \t") == text.npos) return {};
  const std::vector<Item> items = Parser(text).items();
  std::size_t named = 0, rests = 0;
  for (const Item& item : items) {
    const bool rest = item.kind == Item::Kind::kRest;
    rests += rest;
    named += !rest;
    if (rests > 1) Parser::fail_at(item.at, "'...' may appear once");
    if (named > shape.rank()) {
      Parser::fail_at(item.at,
                      fmt::format("too many dimensions, the tensor has the shape {}", to_string(shape)));
    }
  }
  Selection selection;
  for (const Item& item : items) {
    if (item.kind != Item::Kind::kRest) {
      selection.push_back(range_of(item, shape[selection.size()]));
      continue;
    }
    for (std::size_t n = shape.rank() - named; n > 0; --n) {
      selection.push_back({0, shape[selection.size()], 1});
    }
  }
  return selection;
}

}  // namespace cairn
