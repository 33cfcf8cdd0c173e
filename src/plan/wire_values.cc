#include "plan/wire_values.h"

#include <limits>
#include <utility>

#include "state/nesting.h"

namespace cairn {
namespace {

constexpr int kMostDepth = 64;

enum class ValueTag : std::uint8_t {
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

void put_text(std::string& out, ValueTag tag, std::string_view text) {
  out.push_back(static_cast<char>(tag));
  put_varint(out, text.size());
  out.append(text);
}

void put_value(std::string& out, const Value& value, int depth);

void put_list(std::string& out, ValueTag tag, const List& items, int depth) {
  out.push_back(static_cast<char>(tag));
  put_varint(out, items.size());
  for (const Value& item : items) put_value(out, item, depth + 1);
}

void put_dict(std::string& out, const Dict& dict, int depth) {
  out.push_back(static_cast<char>(ValueTag::kDict));
  put_varint(out, dict.size());
  for (const auto& [key, item] : dict) {
    std::visit([&](const auto& k) { put_value(out, Value(k), depth + 1); }, key);
    put_value(out, item, depth + 1);
  }
}

void put_value(std::string& out, const Value& value, int depth) {
  if (depth > kMostDepth) throw Error(ErrorCode::kLimit, "data attached to a plan is nested too deeply");
  if (value.is<None>()) {
    out.push_back(static_cast<char>(ValueTag::kNone));
  } else if (const bool* flag = value.get_if<bool>()) {
    out.push_back(static_cast<char>(*flag ? ValueTag::kTrue : ValueTag::kFalse));
  } else if (const auto* number = value.get_if<std::int64_t>()) {
    out.push_back(static_cast<char>(ValueTag::kInt));
    put(out, *number);
  } else if (const auto* real = value.get_if<double>()) {
    out.push_back(static_cast<char>(ValueTag::kDouble));
    put(out, *real);
  } else if (const auto* text = value.get_if<std::string>()) {
    put_text(out, ValueTag::kString, *text);
  } else if (const auto* bytes = value.get_if<Bytes>()) {
    put_text(out, ValueTag::kBytes, bytes->data);
  } else if (const auto* big = value.get_if<BigInt>()) {
    put_text(out, ValueTag::kBigInt, big->twos_complement);
  } else if (const auto* list = value.get_if<List>()) {
    put_list(out, ValueTag::kList, *list, depth);
  } else if (const auto* tuple = value.get_if<Tuple>()) {
    put_list(out, ValueTag::kTuple, tuple->items, depth);
  } else if (const auto* dict = value.get_if<Dict>()) {
    put_dict(out, *dict, depth);
  } else {
    throw Error(ErrorCode::kUnsupported, "data attached to a plan holds a tensor or a foreign object");
  }
}

Value read_value(WireReader& in, int depth) {
  if (depth > kMostDepth) in.fail("is nested too deeply");
  const auto tag = static_cast<ValueTag>(in.get<std::uint8_t>());
  switch (tag) {
    case ValueTag::kNone: return None{};
    case ValueTag::kFalse: return false;
    case ValueTag::kTrue: return true;
    case ValueTag::kInt: return in.get<std::int64_t>();
    case ValueTag::kDouble: return in.get<double>();
    case ValueTag::kString: return std::string(in.text(in.varint()));
    case ValueTag::kBytes: return Bytes{std::string(in.text(in.varint()))};
    case ValueTag::kBigInt: return BigInt{std::string(in.text(in.varint()))};
    case ValueTag::kList:
    case ValueTag::kTuple: {
      List items;
      for (std::uint64_t count = in.varint(); count > 0; --count) items.push_back(read_value(in, depth + 1));
      if (tag == ValueTag::kTuple) return Tuple{std::move(items)};
      return items;
    }
    case ValueTag::kDict: {
      Dict dict;
      const std::uint64_t count = in.varint();
      for (std::uint64_t i = 0; i < count; ++i) {
        const Value key = read_value(in, depth + 1);
        Value item = read_value(in, depth + 1);
        if (const auto* name = key.get_if<std::string>()) {
          dict.set(*name, std::move(item));
        } else if (const auto* number = key.get_if<std::int64_t>()) {
          dict.set(*number, std::move(item));
        } else {
          in.fail("has a key that is neither name nor number");
        }
        if (dict.size() != i + 1) in.fail("has a key twice");
      }
      return dict;
    }
    default: in.fail("has a value of no known kind");
  }
}

}  // namespace

void put_value(std::string& out, const Value& value) { put_value(out, value, 0); }

Value read_value(WireReader& in) { return read_value(in, 0); }

}  // namespace cairn
