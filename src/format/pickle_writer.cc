#include "format/pickle_writer.h"

#include <fmt/format.h>

#include <bit>

#include "base/utf8.h"
#include "cairn/error.h"
#include "format/pickle_ops.h"
#include "state/nesting.h"

namespace cairn::pickle {

Writer::Writer(ByteSink& sink, int protocol) : sink_(sink), protocol_(protocol) {
  op(static_cast<char>(kProto));
  buffer_.push_back(static_cast<char>(protocol));
}

template <class T> void Writer::number(char code, T v) {
  op(code);
  buffer_.append(reinterpret_cast<const char*>(&v), sizeof(v));
}

void Writer::flush() {
  sink_.append(as_bytes(buffer_));
  buffer_.clear();
}

void Writer::none() { op(kNoneOp); }
void Writer::boolean(bool v) { op(static_cast<char>(v ? kNewTrue : kNewFalse)); }

void Writer::integer(std::int64_t v) {
  if (v >= 0 && v < 256) {
    number(kBinInt1, static_cast<std::uint8_t>(v));
  } else if (v >= 0 && v < 65536) {
    number(kBinInt2, static_cast<std::uint16_t>(v));
  } else if (v >= INT32_MIN && v <= INT32_MAX) {
    number(kBinInt, static_cast<std::int32_t>(v));
  } else {
    // The shortest two's complement that keeps the sign.
    int bytes = 5;
    while (bytes < 8 && v >> (8 * bytes - 1) != 0 && v >> (8 * bytes - 1) != -1) ++bytes;
    big_integer({reinterpret_cast<const char*>(&v), static_cast<std::size_t>(bytes)});
  }
}

void Writer::big_integer(std::string_view twos_complement) {
  if (twos_complement.size() > 255) throw Error(ErrorCode::kLimit, "an integer of more than 255 bytes");
  number(static_cast<char>(kLong1), static_cast<std::uint8_t>(twos_complement.size()));
  buffer_.append(twos_complement);
}

void Writer::real(double v) { number(kBinFloat, __builtin_bswap64(std::bit_cast<std::uint64_t>(v))); }

void Writer::string(std::string_view text) {
  if (protocol_ >= 4 && text.size() < 256) {
    number(static_cast<char>(kShortBinUnicode), static_cast<std::uint8_t>(text.size()));
  } else if (text.size() <= UINT32_MAX) {
    number(kBinUnicode, static_cast<std::uint32_t>(text.size()));
  } else {
    throw Error(ErrorCode::kLimit, "a string of more than 4 GiB");
  }
  buffer_.append(text);
}

std::uint32_t Writer::memoize() {
  if (protocol_ >= 4) {
    op(static_cast<char>(kMemoize));
  } else if (memo_size_ < 256) {
    number(kBinPut, static_cast<std::uint8_t>(memo_size_));
  } else {
    number(kLongBinPut, memo_size_);
  }
  return memo_size_++;
}

void Writer::fetch(std::uint32_t memo) {
  if (memo < 256) {
    number(kBinGet, static_cast<std::uint8_t>(memo));
  } else {
    number(kLongBinGet, memo);
  }
}

bool Writer::recall(std::uint32_t name) {
  if (name >= numbers_.size()) numbers_.resize(std::max<std::size_t>(name + 1, 2 * numbers_.size()), kNotYet);
  if (numbers_[name] == kNotYet) return false;
  fetch(numbers_[name]);
  return true;
}

void Writer::shared_string(std::string_view text) {
  const std::uint32_t name = names_.intern(text);
  if (recall(name)) return;
  string(text);
  numbers_[name] = memoize();
}

void Writer::bytes(std::string_view data) {
  if (protocol_ >= 3) {
    if (data.size() < 256) {
      number(kShortBinBytes, static_cast<std::uint8_t>(data.size()));
    } else {
      number(kBinBytes, static_cast<std::uint32_t>(data.size()));
    }
    buffer_.append(data);
    return;
  }
  global("_codecs", "encode");
  string(latin1_to_utf8(data));
  string("latin1");  // not shared: an opaque object that was read and written again is the same bytes
  tuple(2);
  reduce();
}

void Writer::global(std::string_view module, std::string_view name) {
  if (module.find('\n') != std::string_view::npos || name.find('\n') != std::string_view::npos)
    throw Error(ErrorCode::kInvalidArgument, "a class whose name has a line break");
  const std::uint32_t key =
      names_.intern(fmt::format("{}\n{}\n", module, name));  // no string value looks like this
  if (recall(key)) return;
  if (protocol_ >= 4) {
    shared_string(module);
    shared_string(name);
    op(static_cast<char>(kStackGlobal));
  } else {
    op(kGlobalOp);
    buffer_.append(module == "builtins" ? "__builtin__" : module == "copyreg" ? "copy_reg" : module);
    buffer_.push_back('\n');
    buffer_.append(name);
    buffer_.push_back('\n');
  }
  numbers_[key] = memoize();
}

void Writer::mark() { op(kMark); }
void Writer::tuple() { op(kTupleOp); }

void Writer::tuple(std::size_t size) {
  if (size > 3) throw Error(ErrorCode::kInternal, "a tuple of more than three values needs a mark");
  op(static_cast<char>(size == 0 ? static_cast<std::size_t>(kEmptyTuple) : kTuple1 + size - 1));
}

void Writer::empty_list() { op(kEmptyList); }
void Writer::appends() { op(kAppends); }
void Writer::empty_dict() { op(kEmptyDict); }
void Writer::setitems() { op(kSetItems); }
void Writer::reduce() { op(kReduce); }
void Writer::newobj() { op(static_cast<char>(kNewObj)); }
void Writer::build() { op(kBuild); }
void Writer::persid() { op(kBinPersid); }

// GLOBAL with the names of Python 3: CPython translates those of protocol 2 only in pickles of protocol 2.
static std::string modern_global(std::string_view lines) {
  const std::string_view module = lines.substr(0, lines.find('\n'));
  const std::string_view modern = module == "__builtin__" ? "builtins"
                                  : module == "copy_reg"  ? "copyreg"
                                                          : module;
  return fmt::format("c{}{}\n", modern, lines.substr(module.size()));
}

void Writer::splice(std::string_view pickle) {
  const std::uint32_t base = memo_size_;
  std::uint32_t count = 0;
  std::optional<Instruction> at = decode(pickle, 0);
  if (!at || at->op != kProto) throw Error(ErrorCode::kCorrupt, "an opaque object that is no pickle");
  for (at = decode(pickle, at->next); at && at->op != kStop; at = decode(pickle, at->next)) {
    switch (at->op) {
      case kFrame: break;
      case kMemoize: number(kLongBinPut, base + count++); break;
      case kBinPut:
      case kLongBinPut:
        number(kLongBinPut, base + static_cast<std::uint32_t>(at->number));
        count = std::max(count, static_cast<std::uint32_t>(at->number) + 1);
        break;
      case kBinGet:
      case kLongBinGet: number(kLongBinGet, base + static_cast<std::uint32_t>(at->number)); break;
      case kGlobalOp:
        buffer_.append(protocol_ >= 3 ? modern_global(at->text) : pickle.substr(at->at, at->next - at->at));
        break;
      default: buffer_.append(pickle.substr(at->at, at->next - at->at));
    }
  }
  if (!at || at->next != pickle.size())
    throw Error(ErrorCode::kCorrupt, "an opaque object that is no whole pickle");
  memo_size_ += count;
}

void Writer::nested(const Value& v, const TensorWriter& tensors, int depth) {
  check_nesting(depth);
  if (v.is<None>()) return none();
  if (const auto* b = v.get_if<bool>()) return boolean(*b);
  if (const auto* i = v.get_if<std::int64_t>()) return integer(*i);
  if (const auto* big = v.get_if<BigInt>()) return big_integer(big->twos_complement);
  if (const auto* d = v.get_if<double>()) return real(*d);
  if (const auto* s = v.get_if<std::string>()) return string(*s);
  if (const auto* b = v.get_if<Bytes>()) return bytes(b->data);
  if (const auto* o = v.get_if<Opaque>()) return splice(o->pickle);
  if (const auto* list = v.get_if<List>()) {
    empty_list();
    for (std::size_t i = 0; i < list->size(); i += kBatch) {
      mark();
      for (std::size_t k = i; k < std::min(i + kBatch, list->size()); ++k)
        nested((*list)[k], tensors, depth + 1);
      appends();
    }
    return;
  }
  if (const auto* t = v.get_if<Tuple>()) {
    if (t->items.empty()) return tuple(0);
    mark();
    for (const Value& item : t->items) nested(item, tensors, depth + 1);
    return tuple();
  }
  if (const auto* dict = v.get_if<Dict>()) {
    empty_dict();
    for (const auto* entry = dict->begin(); entry != dict->end();) {
      mark();
      for (std::size_t k = 0; k < kBatch && entry != dict->end(); ++k, ++entry) {
        if (const auto* name = std::get_if<std::string>(&entry->first)) {
          string(*name);
        } else {
          integer(std::get<std::int64_t>(entry->first));
        }
        nested(entry->second, tensors, depth + 1);
      }
      setitems();
    }
    return;
  }
  if (!tensors) throw Error(ErrorCode::kInvalidArgument, "a tensor where only plain values can be written");
  tensors(*this, v);
}

void Writer::finish() {
  op(kStop);
  flush();
}

}  // namespace cairn::pickle
