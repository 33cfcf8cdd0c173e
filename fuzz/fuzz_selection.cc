// Slices as people type them. An input is "4,5,6|[0:2, ::2]": the tensor's shape, a bar, the slice.
#include <algorithm>
#include <vector>

#include "cairn/checkpoint.h"
#include "fuzz.h"

namespace cairn::fuzz {

namespace {

// At most four dimensions; what is no number is 0.
Shape shape_from(std::string_view text) {
  std::vector<std::int64_t> dims;
  while (!text.empty() && dims.size() < 4) {
    const std::string_view number = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), number.size() + 1));
    std::uint32_t dim = 0;
    std::from_chars(number.data(), number.data() + number.size(), dim);
    dims.push_back(dim);
  }
  return Shape(dims);
}

}  // namespace

void run(ByteSpan input, const Limits&) {
  const std::string_view text = as_text(input);
  const std::size_t bar = std::min(text.find('|'), text.size());
  const Shape shape = shape_from(text.substr(0, bar));
  const Selection selection = parse_selection(text.substr(std::min(bar + 1, text.size())), shape);
  require(selection.size() <= shape.rank(), "no more ranges than dimensions");
  for (std::size_t i = 0; i < selection.size(); ++i) {
    const Range& range = selection[i];
    require(range.count >= 0 && range.step >= 1 && range.start >= 0, "a range counts up from inside");
    if (range.count == 0) continue;
    require(range.start < shape[i], "the first element exists");
    require(range.count - 1 <= (shape[i] - 1 - range.start) / range.step, "the last element exists");
  }
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
