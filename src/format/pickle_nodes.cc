// Making values, and changing those that are still being filled.

#include <cstring>

#include "base/utf8.h"
#include "format/pickle_machine.h"

namespace cairn::pickle {

// Copies word by word; the bytes behind the text in its last word are readable (Input's slack) and cleared.
Ref Machine::text_node(Kind kind, const std::byte* from, std::uint64_t length) {
  const std::uint64_t index = graph_.words_.size();
  std::uint64_t* w = new_words(1 + (length + 7) / 8);
  *w++ = length;
  std::uint64_t all = 0;
  std::uint64_t left = length;
  for (; left >= 8; left -= 8, from += 8) all |= * w++ = load<std::uint64_t>(from);
  if (left > 0) all |= * w = load<std::uint64_t>(from) & ~(~std::uint64_t{0} << (8 * left));
  last_text_is_ascii_ = (all & 0x8080808080808080U) == 0;
  return node(kind, index);
}

Ref Machine::string_node(const std::byte* from, std::uint64_t length) {
  if (length > string_limit_) {
    fail(ErrorCode::kLimit, fmt::format("a string of {} bytes, more than {}", length, string_limit_));
  }
  const Ref made = text_node(Kind::kString, from, length);
  if (!last_text_is_ascii_ && !is_utf8_beyond_ascii(graph_.text(made)))
    fail(ErrorCode::kCorrupt, "a string is not UTF-8");
  return made;
}

Ref Machine::integer_node(const std::byte* from, std::uint64_t length) {
  if (options_.dialect == Dialect::kMetadata && length > 9) {
    fail(ErrorCode::kLimit, fmt::format("an integer of {} bytes where offsets and sizes belong", length));
  }
  // Bytes that only repeat the sign say nothing.
  const auto byte = [&](std::uint64_t i) { return static_cast<unsigned>(from[i]); };
  while (length > 8 && byte(length - 1) == ((byte(length - 2) & 0x80U) != 0 ? 0xFFU : 0U)) --length;
  if (length <= 8) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, length);
    if (length > 0 && length < 8 && (static_cast<unsigned>(from[length - 1]) & 0x80U) != 0)
      bits |= ~std::uint64_t{0} << (8 * length);
    const auto value = static_cast<std::int64_t>(bits);
    if (value >= -kInlineIntMax && value <= kInlineIntMax) return inline_int(value);
  }
  return text_node(Kind::kBigInt, from, length);
}

Ref Machine::tuple_node(const std::uint64_t* items, std::uint64_t count) {
  if (count == 0) return node(Kind::kTuple, 0);
  const std::uint64_t index = graph_.words_.size();
  std::uint64_t* w = new_words(1 + count);
  w[0] = count;
  std::memcpy(w + 1, items, count * 8);
  return node(Kind::kTuple, index);
}

Ref Machine::container_node(Kind kind, bool ordered) {
  const std::uint64_t index = graph_.words_.size();
  std::uint64_t* w = new_words(kContainerWords);
  w[kContainerCount] = ordered ? kOrderedDict : 0;
  w[kContainerFirst] = 0;
  w[kContainerLast] = 0;
  return node(kind, index);
}

Ref Machine::global_node(Ref module, Ref name) {
  if (module.kind() != Kind::kString || name.kind() != Kind::kString) {
    fail(ErrorCode::kCorrupt, "a class is named by something that is no string");
  }
  for (const Ref part : {module, name}) {
    const std::size_t length = graph_.text(part).size();
    if (length > limits_.class_name_bytes)
      fail(ErrorCode::kLimit,
           fmt::format("a class whose name has {} bytes, more than {}", length, limits_.class_name_bytes));
  }
  // In protocol 2 a name ends with its line: what follows the break would become opcodes when it is written.
  if (graph_.text(module).find('\n') != std::string_view::npos ||
      graph_.text(name).find('\n') != std::string_view::npos) {
    fail(ErrorCode::kCorrupt, "a class whose name has a line break");
  }
  pay(2 * sizeof(Ref) + sizeof(class_ids_[0]));
  const std::uint64_t index = graph_.globals_.size() / 2;
  graph_.globals_.push_back(module.bits);
  graph_.globals_.push_back(name.bits);
  const Ref global = node(Kind::kGlobal, index);
  class_ids_.push_back(options_.reducer == nullptr
                           ? 0
                           : options_.reducer->class_id(graph_.module(global), graph_.name(global)));
  return global;
}

Ref Machine::object_node(Ref callable, Ref args, bool made_by_new) {
  // Python can call an object; plain values nobody can.
  if (callable.kind() != Kind::kGlobal) {
    const bool object = callable.kind() == Kind::kObject || callable.kind() == Kind::kHandle;
    fail(object ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
         "the pickle calls something that is no named class");
  }
  if (args.kind() != Kind::kTuple)
    fail(ErrorCode::kCorrupt, "a class is called with something that is no tuple");
  const std::uint64_t index = graph_.words_.size();
  std::uint64_t* w = new_words(kObjectWords);
  w[kObjectCallable] = callable.bits;
  w[kObjectArgs] = args.bits;
  w[kObjectState] = small(Kind::kNone).bits;
  w[kObjectList] = small(Kind::kNone).bits;
  w[kObjectDict] = small(Kind::kNone).bits;
  w[kObjectFlags] = made_by_new ? kMadeByNew : 0;
  return node(Kind::kObject, index);
}

// As protocol 2 writes it: builtins.frozenset([...]).
Ref Machine::frozenset_node(const std::uint64_t* items, std::uint64_t count) {
  if (frozenset_ == Ref{}) {
    constexpr char kNames[2][16] = {"builtins", "frozenset"};  // whole words, as text_node reads them
    const auto* names = reinterpret_cast<const std::byte*>(kNames);
    const Ref module = string_node(names, std::strlen(kNames[0]));
    frozenset_ = global_node(module, string_node(names + sizeof(kNames[0]), std::strlen(kNames[1])));
  }
  const Ref list = container_node(Kind::kList);
  append(list, items, count);
  return object_node(frozenset_, tuple_node(&list.bits, 1), false);
}

void Machine::append(Ref container, const std::uint64_t* items, std::uint64_t count) {
  if (count == 0) return;
  auto& words = graph_.words_;
  const std::uint64_t at = container.bits >> 4;
  const std::uint64_t last = words[at + kContainerLast];
  if (last != 0 && last + 2 + words[last] == words.size()) {  // the last segment ends the array: lengthen it
    std::memcpy(new_words(count), items, count * 8);
    words[last] += count;
  } else {
    const std::uint64_t index = words.size();
    std::uint64_t* w = new_words(2 + count);
    w[0] = count;
    w[1] = 0;
    std::memcpy(w + 2, items, count * 8);
    words[last != 0 ? last + 1 : at + kContainerFirst] = index;
    words[at + kContainerLast] = index;
  }
  words[at + kContainerCount] += 2 * count;
}

// The list behind APPEND: the list itself, or the one an object of a list-like class collects.
Ref Machine::list_to_append_to(Ref target) {
  if (target.kind() == Kind::kList) return target;
  if (target.kind() != Kind::kObject) fail(ErrorCode::kCorrupt, "APPEND to something that is no list");
  const std::uint64_t at = target.bits >> 4;
  if ((graph_.words_[at + kObjectFlags] & kReduced) != 0)
    fail(ErrorCode::kCorrupt, "APPEND to something that is no list");
  if (Ref{graph_.words_[at + kObjectList]}.kind() == Kind::kNone) {
    const Ref made = container_node(Kind::kList);
    graph_.words_[at + kObjectList] = made.bits;
  }
  return Ref{graph_.words_[at + kObjectList]};
}

Ref Machine::dict_to_set_in(Ref target) {
  if (target.kind() == Kind::kDict) return target;
  if (target.kind() != Kind::kObject) fail(ErrorCode::kCorrupt, "SETITEM on something that is no dict");
  const std::uint64_t at = target.bits >> 4;
  if ((graph_.words_[at + kObjectFlags] & kReduced) != 0)
    fail(ErrorCode::kCorrupt, "SETITEM on something that is no dict");
  if (Ref{graph_.words_[at + kObjectDict]}.kind() == Kind::kNone) {
    const Ref made = container_node(Kind::kDict);
    graph_.words_[at + kObjectDict] = made.bits;
  }
  return Ref{graph_.words_[at + kObjectDict]};
}

Ref Machine::reduce(Ref callable, Ref args) {
  if (callable.kind() == Kind::kGlobal && args.kind() == Kind::kTuple) {
    const std::uint32_t id = class_ids_[callable.bits >> 4];
    Ref made;
    if (id != 0 && options_.reducer->called(graph_, id, args, made)) return made;
    if (graph_.size(args) == 0 && graph_.is_global(callable, "collections", "OrderedDict")) {
      return container_node(Kind::kDict, true);
    }
  }
  return object_node(callable, args, false);
}

Ref Machine::build(Ref object, Ref state) {
  // An OrderedDict may carry attributes (torch's state dicts have _metadata): they change no entry.
  if (object.kind() == Kind::kDict && graph_.is_ordered_dict(object)) return object;
  if (object.kind() == Kind::kHandle)
    fail(ErrorCode::kUnsupported, "an object that is complete is given a state");
  if (object.kind() != Kind::kObject) fail(ErrorCode::kCorrupt, "BUILD on something that is no object");
  const std::uint64_t at = object.bits >> 4;
  if ((graph_.words_[at + kObjectFlags] & (kReduced | kHasState)) != 0) {
    fail(ErrorCode::kUnsupported, "an object is given its state twice");
  }
  const std::uint32_t id = class_ids_[graph_.callable(object).bits >> 4];
  Ref made;
  if (id != 0 && !recovering_ && options_.reducer->built(graph_, id, graph_.args(object), state, made)) {
    graph_.words_[at + kObjectFlags] |= kReduced;
    graph_.words_[at + kObjectCallable] = made.bits;
    return made;
  }
  graph_.words_[at + kObjectFlags] |= kHasState;
  graph_.words_[at + kObjectState] = state.bits;
  return object;
}

}  // namespace cairn::pickle
