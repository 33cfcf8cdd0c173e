#include "plan/wire_bytes.h"

#include <limits>
#include <utility>

#include "state/nesting.h"

namespace cairn {
namespace {

constexpr int kMostDepth = 64;

enum Tag : std::uint8_t {
  kNone,
  kFalse,
  kTrue,
  kInt,
  kBigInt,
  kDouble,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict
};

void put_text(std::string& out, Tag tag, std::string_view text) {
  out.push_back(static_cast<char>(tag));
  put_varint(out, text.size());
  out.append(text);
}

void put_value(std::string& out, const Value& value, int depth);

void put_list(std::string& out, Tag tag, const List& items, int depth) {
  out.push_back(static_cast<char>(tag));
  put_varint(out, items.size());
  for (const Value& item : items) put_value(out, item, depth + 1);
}

void put_dict(std::string& out, const Dict& dict, int depth) {
  out.push_back(static_cast<char>(kDict));
  put_varint(out, dict.size());
  for (const auto& [key, item] : dict) {
    std::visit([&](const auto& k) { put_value(out, Value(k), depth + 1); }, key);
    put_value(out, item, depth + 1);
  }
}

void put_value(std::string& out, const Value& value, int depth) {
  if (depth > kMostDepth) throw Error(ErrorCode::kLimit, "data attached to a plan is nested too deeply");
  if (value.is<None>()) {
    out.push_back(static_cast<char>(kNone));
  } else if (const bool* flag = value.get_if<bool>()) {
    out.push_back(static_cast<char>(*flag ? kTrue : kFalse));
  } else if (const auto* number = value.get_if<std::int64_t>()) {
    out.push_back(static_cast<char>(kInt));
    put(out, *number);
  } else if (const auto* real = value.get_if<double>()) {
    out.push_back(static_cast<char>(kDouble));
    put(out, *real);
  } else if (const auto* text = value.get_if<std::string>()) {
    put_text(out, kString, *text);
  } else if (const auto* bytes = value.get_if<Bytes>()) {
    put_text(out, kBytes, bytes->data);
  } else if (const auto* big = value.get_if<BigInt>()) {
    put_text(out, kBigInt, big->twos_complement);
  } else if (const auto* list = value.get_if<List>()) {
    put_list(out, kList, *list, depth);
  } else if (const auto* tuple = value.get_if<Tuple>()) {
    put_list(out, kTuple, tuple->items, depth);
  } else if (const auto* dict = value.get_if<Dict>()) {
    put_dict(out, *dict, depth);
  } else {
    throw Error(ErrorCode::kUnsupported, "data attached to a plan holds a tensor or a foreign object");
  }
}

}  // namespace

void put_value(std::string& out, const Value& value) { put_value(out, value, 0); }

std::uint64_t WireReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = get<std::uint8_t>();
    const std::uint64_t bits = byte & 0x7f;
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if (byte < 0x80) {
      if (byte == 0 && shift > 0) break;  // one spelling per number
      return value;
    }
  }
  fail("has a number that is not well formed");
}

Value WireReader::value(int depth) {
  if (depth > kMostDepth) fail("is nested too deeply");
  const auto tag = get<std::uint8_t>();
  switch (tag) {
    case kNone: return None{};
    case kFalse: return false;
    case kTrue: return true;
    case kInt: return get<std::int64_t>();
    case kDouble: return get<double>();
    case kString: return std::string(text(varint()));
    case kBytes: return Bytes{std::string(text(varint()))};
    case kBigInt: return BigInt{std::string(text(varint()))};
    case kList:
    case kTuple: {
      List items;
      for (std::uint64_t count = varint(); count > 0; --count) items.push_back(value(depth + 1));
      if (tag == kTuple) return Tuple{std::move(items)};
      return items;
    }
    case kDict: {
      Dict dict;
      const std::uint64_t count = varint();
      for (std::uint64_t i = 0; i < count; ++i) {
        const Value key = value(depth + 1);
        Value item = value(depth + 1);
        if (const auto* name = key.get_if<std::string>()) {
          dict.set(*name, std::move(item));
        } else if (const auto* number = key.get_if<std::int64_t>()) {
          dict.set(*number, std::move(item));
        } else {
          fail("has a key that is neither name nor number");
        }
        if (dict.size() != i + 1) fail("has a key twice");
      }
      return dict;
    }
    default: fail("has a value of no known kind");
  }
}

}  // namespace cairn
