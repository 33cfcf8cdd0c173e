#include "format/pickle_cursor.h"

#include "base/utf8.h"

namespace cairn::pickle {

bool Cursor::string(const Graph& graph, std::string_view& text) {
  std::uint64_t number = 0;
  if (fetch(number)) {
    const Ref value = recall(number);
    if (value.kind() != Kind::kString) return false;
    text = graph.text(value);
    return true;
  }
  if (*p_ != std::byte{kShortBinUnicode}) return false;
  const std::size_t length = load<std::uint8_t>(p_ + 1);
  text = {reinterpret_cast<const char*>(p_ + 2), length};
  if (!is_utf8(text)) return false;
  p_ += 2 + length;
  if (*p_ == std::byte{kMemoize}) {
    ++p_;
    ++memo_count_;
  }
  return true;
}

}  // namespace cairn::pickle
