// The machine itself: one loop over the opcodes, a stack of words, and the graph it fills.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/utf8.h"
#include "cairn/error.h"
#include "format/pickle.h"
#include "format/pickle_cursor.h"
#include "format/pickle_input.h"
#include "format/pickle_layout.h"
#include "format/pickle_memo.h"
#include "format/pickle_ops.h"

namespace cairn::pickle {

namespace {

constexpr std::int64_t kInlineIntMax = (std::int64_t{1} << 59) - 1;

Ref small(Kind kind) { return Ref{static_cast<std::uint64_t>(kind)}; }
Ref inline_int(std::int64_t v) {
  return Ref{static_cast<std::uint64_t>(v) << 4 | static_cast<std::uint64_t>(Kind::kInt)};
}
Ref node(Kind kind, std::uint64_t index) { return Ref{index << 4 | static_cast<std::uint64_t>(kind)}; }

double big_endian_double(const std::byte* p) {
  return std::bit_cast<double>(__builtin_bswap64(load<std::uint64_t>(p)));
}

}  // namespace

class Machine final : private Cursor::Host {
 public:
  Machine(Input& input, const Options& options, const Limits& limits)
      : input_(input),
        options_(options),
        limits_(limits),
        string_limit_(options.dialect == Dialect::kTorch ? limits.torch_string_bytes : limits.string_bytes),
        word_limit_((16ULL << 20) / 8 + 4 * input.size()) {}

  Graph run();

 private:
  // Making values.
  std::uint64_t* new_words(std::uint64_t n) {
    if (graph_.words_.size() + n > word_limit_) {
      fail(ErrorCode::kLimit, "the pickle describes more than 32 bytes of values per byte");
    }
    return graph_.words_.extend(n);
  }
  Ref text_node(Kind kind, const std::byte* from, std::uint64_t length);
  Ref string_node(const std::byte* from, std::uint64_t length);
  Ref integer_node(const std::byte* from, std::uint64_t length);
  Ref tuple_node(const std::uint64_t* items, std::uint64_t count);
  Ref container_node(Kind kind, bool ordered = false);
  Ref global_node(Ref module, Ref name);
  Ref object_node(Ref callable, Ref args, bool made_by_new);

  // Changing them.
  void append(Ref container, const std::uint64_t* items, std::uint64_t count);
  Ref list_to_append_to(Ref target);
  Ref dict_to_set_in(Ref target);
  Ref reduce(Ref callable, Ref args);
  Ref build(Ref object, Ref state);
  void remember(std::uint64_t number, Ref value);
  Ref recall(std::uint64_t number) override;
  void bring(const std::byte* p, std::uint64_t bytes) override;

  // Objects the reducer recognized whole left nothing in the memo. Should the program fetch one of their
  // parts after all, the stretch of program they came from is run again, once, the plain way.
  struct Stretch {
    std::uint64_t first_number;
    std::uint64_t begin, end;  // offsets in the program
    std::uint32_t objects;
    bool recovered;
  };
  const std::byte* try_recognize(const std::byte* p, Ref global);
  void note_stretch(std::uint64_t begin, std::uint64_t end, std::uint64_t first_number);
  void recover(std::uint64_t number);
  const std::byte* execute(const std::byte* p, const std::byte* until);

  // The stack. `need` checks that so many values lie above the last mark.
  void push(Ref r) {
    if (stack_.size() >= limits_.pickle_stack) fail(ErrorCode::kLimit, "too many values on the pickle stack");
    stack_.push_back(r.bits);
  }
  void need(std::uint64_t n) const {
    if (stack_.size() - floor_ < n) fail(ErrorCode::kCorrupt, "an opcode takes more values than there are");
  }
  Ref pop() {
    const Ref r{stack_.back()};
    stack_.pop_back();
    return r;
  }
  Ref& top() { return reinterpret_cast<Ref&>(stack_.back()); }
  void mark();
  std::uint64_t pop_mark();  // position of the first value above the mark

  const std::byte* take_text(const std::byte* p, std::uint64_t length);
  const std::byte* take_lines(const std::byte* p);
  void open_frame(const std::byte* p, std::uint64_t length);
  [[noreturn]] void fail(ErrorCode code, std::string message) const {
    throw Error(code, std::move(message)).at(static_cast<std::uint64_t>(op_at_ - input_.begin()));
  }

  [[noreturn]] void refuse(std::uint8_t op) const {
    const OpFacts& facts = facts_of(op);
    if (facts.name == nullptr) fail(ErrorCode::kCorrupt, fmt::format("0x{:02x} is no pickle opcode", op));
    fail(ErrorCode::kUnsupported, fmt::format("pickle opcode {} is never taken from a file", facts.name));
  }

  Input& input_;
  const Options& options_;
  const Limits& limits_;
  const std::uint64_t string_limit_;
  const std::uint64_t word_limit_;
  Graph graph_;
  PodVector<std::uint64_t> stack_;
  PodVector<std::uint64_t> marks_;
  PodVector<std::uint32_t> class_ids_;  // of each global, for the reducer
  Memo memo_;
  PodVector<Stretch> stretches_;
  std::uint64_t floor_ = 0;       // stack size at the last mark
  std::uint64_t memo_count_ = 0;  // numbers given so far
  bool recovering_ = false;
  bool last_text_is_ascii_ = true;
  const std::byte* op_at_ = nullptr;
  const std::byte* safe_ = nullptr;
  const std::byte* frame_end_ = nullptr;
};

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
  if (length <= 8) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, length);
    if (length > 0 && length < 8 && (static_cast<unsigned>(from[length - 1]) & 0x80U) != 0)
      bits |= ~std::uint64_t{0} << (8 * length);
    const auto value = static_cast<std::int64_t>(bits);
    if (value >= -kInlineIntMax && value <= kInlineIntMax) return inline_int(value);
  } else if (options_.dialect == Dialect::kMetadata && length > 9) {
    fail(ErrorCode::kLimit, fmt::format("an integer of {} bytes where offsets and sizes belong", length));
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
  if (callable.kind() != Kind::kGlobal)
    fail(ErrorCode::kUnsupported, "the pickle calls something that is no named class");
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

void Machine::remember(std::uint64_t number, Ref value) {
  if (number > memo_count_ + limits_.memo_slack) {
    fail(ErrorCode::kLimit,
         fmt::format("memo number {} runs far ahead of the {} given so far", number, memo_count_));
  }
  // Nobody writes this, and what it means would depend on the reader.
  if (number < memo_count_ && !recovering_ && (!stretches_.empty() || memo_.get(number) != Memo::kUnset)) {
    fail(ErrorCode::kCorrupt, fmt::format("memo number {} is given twice", number));
  }
  ++memo_count_;
  memo_.put(number, value.bits);
}

Ref Machine::recall(std::uint64_t number) {
  Ref value{memo_.get(number)};
  if (value.bits == Memo::kUnset) {
    recover(number);
    value = Ref{memo_.get(number)};
    if (value.bits == Memo::kUnset)
      fail(ErrorCode::kCorrupt, fmt::format("memo {} is fetched but not set", number));
  }
  if (value.kind() == Kind::kObject && (graph_.words(value)[kObjectFlags] & kReduced) != 0)
    return graph_.callable(value);
  return value;
}

void Machine::bring(const std::byte* p, std::uint64_t bytes) {
  if (safe_ < input_.end() && p + bytes > safe_) safe_ = input_.bring(op_at_, p, bytes + Input::kSlack);
}

// `p` is just behind the fetch of a class. Returns the place behind the object, or `p` itself.
const std::byte* Machine::try_recognize(const std::byte* p, Ref global) {
  const std::uint32_t id = class_ids_[global.bits >> 4];
  if (id == 0 || recovering_ || options_.plain) return p;
  Cursor cursor(*this, p, memo_count_);
  Ref made;
  if (!options_.reducer->recognize(graph_, id, cursor, made)) return p;
  const auto begin = static_cast<std::uint64_t>(op_at_ - input_.begin());
  note_stretch(begin, static_cast<std::uint64_t>(cursor.place() - input_.begin()), memo_count_);
  memo_count_ = cursor.memo_count();
  top() = made;
  return cursor.place();
}

void Machine::note_stretch(std::uint64_t begin, std::uint64_t end, std::uint64_t first_number) {
  constexpr std::uint32_t kObjects = 64;
  Stretch* last = stretches_.empty() ? nullptr : &stretches_.back();
  if (last != nullptr && last->end == begin && last->objects < kObjects && !last->recovered) {
    last->end = end;
    ++last->objects;
  } else {
    stretches_.push_back({first_number, begin, end, 1, false});
  }
}

void Machine::recover(std::uint64_t number) {
  const Stretch* after =
      std::upper_bound(stretches_.begin(), stretches_.end(), number,
                       [](std::uint64_t n, const Stretch& s) { return n < s.first_number; });
  if (after == stretches_.begin() || number >= memo_count_) return;
  Stretch& stretch = stretches_[static_cast<std::size_t>(after - stretches_.begin() - 1)];
  // A part of a stretch that fetches from another one that is being recovered: not what CPython writes.
  if (stretch.recovered || recovering_) return;
  stretch.recovered = true;

  PodVector<std::uint64_t> stack;
  PodVector<std::uint64_t> marks;
  std::swap(stack, stack_);
  std::swap(marks, marks_);
  const std::uint64_t floor = std::exchange(floor_, 0);
  const std::uint64_t count = std::exchange(memo_count_, stretch.first_number);
  const std::byte* const op_at = op_at_;
  const std::byte* const safe = safe_;
  const std::byte* const frame_end = std::exchange(frame_end_, input_.begin());
  recovering_ = true;
  input_.restore(stretch.begin, stretch.end);
  safe_ = input_.begin() + stretch.end;
  execute(input_.begin() + stretch.begin, input_.begin() + stretch.end);
  recovering_ = false;
  std::swap(stack, stack_);
  std::swap(marks, marks_);
  floor_ = floor;
  memo_count_ = count;
  op_at_ = op_at;
  safe_ = safe;
  frame_end_ = frame_end;
}

void Machine::mark() {
  if (marks_.size() >= limits_.depth)
    fail(ErrorCode::kLimit, fmt::format("nesting deeper than {}", limits_.depth));
  marks_.push_back(floor_);
  floor_ = stack_.size();
}

std::uint64_t Machine::pop_mark() {
  if (marks_.empty()) fail(ErrorCode::kCorrupt, "an opcode takes values up to a mark, but there is none");
  const std::uint64_t first = floor_;
  floor_ = marks_.back();
  marks_.pop_back();
  return first;
}

const std::byte* Machine::take_text(const std::byte* p, std::uint64_t length) {
  if (p > input_.end() || length > static_cast<std::uint64_t>(input_.end() - p)) {
    fail(ErrorCode::kCorrupt, "a string is longer than the rest of the pickle");
  }
  if (p + length > safe_) safe_ = input_.bring(op_at_, p, length + Input::kSlack);
  return p + length;
}

// GLOBAL's two lines become a global on the stack; returns the byte behind them.
const std::byte* Machine::take_lines(const std::byte* p) {
  safe_ = input_.bring(op_at_, p, 4096);
  Ref lines[2];
  for (Ref& line : lines) {
    const std::byte* q = p;
    while (q < input_.end() && q < op_at_ + 2048 && *q != std::byte{'\n'}) ++q;
    if (q >= input_.end() || *q != std::byte{'\n'})
      fail(ErrorCode::kCorrupt, "GLOBAL without the end of its name");
    line = string_node(p, static_cast<std::uint64_t>(q - p));
    p = q + 1;
  }
  push(global_node(lines[0], lines[1]));
  return p;
}

void Machine::open_frame(const std::byte* p, std::uint64_t length) {
  if (p < frame_end_) fail(ErrorCode::kCorrupt, "a FRAME inside a FRAME");
  if (p > input_.end() || length > static_cast<std::uint64_t>(input_.end() - p)) {
    fail(ErrorCode::kCorrupt, "a FRAME longer than the rest of the pickle");
  }
  frame_end_ = p + length;
}

Graph Machine::run() {
  graph_.words_.push_back(0);
  safe_ = frame_end_ = input_.begin();
  graph_.bytes_ = input_.size();
  execute(input_.begin(), nullptr);
  return std::move(graph_);
}

// Runs from `p` up to STOP, or up to `until` when that is given.
const std::byte* Machine::execute(const std::byte* p, const std::byte* until) {
  const std::byte* const begin = input_.begin();
  std::uint64_t first = 0;

  for (;;) {
    if (p >= safe_) {
      if (until != nullptr && p >= until) return p;
      op_at_ = p;
      if (p >= input_.end())
        fail(ErrorCode::kCorrupt, "the pickle ends in the middle of an opcode or without STOP");
      safe_ = input_.bring(p, p, Input::kSlack);
    }
    ++graph_.opcodes_;
    op_at_ = p;
    const auto op = static_cast<std::uint8_t>(*p++);
    if (op_at_ == begin && op != kProto)
      fail(ErrorCode::kUnsupported, "the pickle does not begin with PROTO (protocol 2 or later)");
    switch (op) {
      case kProto: {
        const auto protocol = load<std::uint8_t>(p++);
        if (op_at_ != begin) fail(ErrorCode::kCorrupt, "PROTO in the middle of a pickle");
        if (protocol < 2 || protocol > 5)
          fail(ErrorCode::kUnsupported, fmt::format("pickle protocol {}; 2 to 5 are known", protocol));
        break;
      }
      case kFrame:
        open_frame(p + 8, load<std::uint64_t>(p));
        p += 8;
        break;
      case kMark: mark(); break;
      case kStop: {
        if (p != input_.end()) fail(ErrorCode::kCorrupt, "bytes follow the pickle's STOP");
        if (stack_.size() != 1 || !marks_.empty())
          fail(ErrorCode::kCorrupt, "STOP with other than one value left");
        graph_.root_ = pop();
        return p;
      }
      case kNoneOp: push(small(Kind::kNone)); break;
      case kNewTrue: push(small(Kind::kTrue)); break;
      case kNewFalse: push(small(Kind::kFalse)); break;
      case kBinInt1:
        push(inline_int(load<std::uint8_t>(p)));
        p += 1;
        break;
      case kBinInt2:
        push(inline_int(load<std::uint16_t>(p)));
        p += 2;
        break;
      case kBinInt:
        push(inline_int(load<std::int32_t>(p)));
        p += 4;
        break;
      case kLong1: {
        const std::uint64_t length = load<std::uint8_t>(p++);
        const std::byte* next = take_text(p, length);
        push(integer_node(p, length));
        p = next;
        break;
      }
      case kBinFloat: {
        const std::uint64_t index = graph_.words_.size();
        store(new_words(1), big_endian_double(p));
        push(node(Kind::kFloat, index));
        p += 8;
        break;
      }
      case kShortBinUnicode: {
        const std::uint64_t length = load<std::uint8_t>(p);
        const std::byte* next = take_text(p + 1, length);
        push(string_node(p + 1, length));
        p = next;
        if (p < safe_ && *p == std::byte{kMemoize}) {  // as nearly always
          remember(memo_count_, top());
          ++p;
        }
        break;
      }
      case kBinUnicode:
      case kBinUnicode8:
      case kShortBinString:
      case kShortBinBytes:
      case kBinBytes: {
        if (op == kShortBinString && options_.dialect != Dialect::kTorch) refuse(op);
        std::uint64_t length = 0;
        if (op == kBinUnicode || op == kBinBytes) {
          length = load<std::uint32_t>(p);
          p += 4;
        } else if (op == kBinUnicode8) {
          length = load<std::uint64_t>(p);
          p += 8;
        } else {
          length = load<std::uint8_t>(p);
          p += 1;
        }
        const std::byte* next = take_text(p, length);
        push(op == kShortBinBytes || op == kBinBytes ? text_node(Kind::kBytes, p, length)
                                                     : string_node(p, length));
        p = next;
        break;
      }
      case kEmptyTuple: push(node(Kind::kTuple, 0)); break;
      case kEmptyList: push(container_node(Kind::kList)); break;
      case kEmptyDict: push(container_node(Kind::kDict)); break;
      case kEmptySet: push(container_node(Kind::kSet)); break;
      case kTuple1:
      case kTuple2:
      case kTuple3: {
        const std::uint64_t count = op - kTuple1 + 1U;
        need(count);
        const Ref made = tuple_node(stack_.end() - count, count);
        stack_.truncate(stack_.size() - count);
        push(made);
        break;
      }
      case kTupleOp: {
        first = pop_mark();
        const Ref made = tuple_node(stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        push(made);
        break;
      }
      case kAppend: {
        need(2);
        const Ref item = pop();
        append(list_to_append_to(top()), &item.bits, 1);
        break;
      }
      case kAppends: {
        first = pop_mark();
        if (first <= floor_) fail(ErrorCode::kCorrupt, "APPENDS without a list");
        append(list_to_append_to(Ref{stack_[first - 1]}), stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        break;
      }
      case kAddItems: {
        first = pop_mark();
        if (first <= floor_ || Ref{stack_[first - 1]}.kind() != Kind::kSet)
          fail(ErrorCode::kCorrupt, "ADDITEMS without a set");
        append(Ref{stack_[first - 1]}, stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        break;
      }
      case kSetItem: {
        need(3);
        append(dict_to_set_in(Ref{stack_[stack_.size() - 3]}), stack_.end() - 2, 2);
        stack_.truncate(stack_.size() - 2);
        break;
      }
      case kSetItems: {
        first = pop_mark();
        if (first <= floor_) fail(ErrorCode::kCorrupt, "SETITEMS without a dict");
        if ((stack_.size() - first) % 2 != 0)
          fail(ErrorCode::kCorrupt, "SETITEMS with a key that has no value");
        append(dict_to_set_in(Ref{stack_[first - 1]}), stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        break;
      }
      case kGlobalOp: p = take_lines(p); break;
      case kStackGlobal: {
        need(2);
        const Ref name = pop();
        top() = global_node(top(), name);
        break;
      }
      case kNewObj: {
        need(2);
        const Ref args = pop();
        top() = object_node(top(), args, true);
        break;
      }
      case kReduce: {
        need(2);
        const Ref args = pop();
        top() = reduce(top(), args);
        break;
      }
      case kBuild: {
        need(2);
        const Ref state = pop();
        top() = build(top(), state);
        break;
      }
      case kBinPersid: {
        if (options_.dialect != Dialect::kTorch) refuse(op);
        need(1);
        const std::uint64_t index = graph_.words_.size();
        *new_words(1) = top().bits;
        top() = node(Kind::kPersid, index);
        break;
      }
      case kMemoize:
        need(1);
        remember(memo_count_, top());
        break;
      case kBinPut:
        need(1);
        remember(load<std::uint8_t>(p), top());
        p += 1;
        break;
      case kLongBinPut:
        need(1);
        remember(load<std::uint32_t>(p), top());
        p += 4;
        break;
      case kBinGet:
      case kLongBinGet: {
        const std::uint64_t number = op == kBinGet ? load<std::uint8_t>(p) : load<std::uint32_t>(p);
        p += op == kBinGet ? 1 : 4;
        const Ref value = recall(number);
        push(value);
        if (value.kind() == Kind::kGlobal) p = try_recognize(p, value);
        break;
      }
      default: refuse(op);
    }
  }
}

Graph read(const ByteSource& source, const Options& options, const Limits& limits) {
  if (source.size() > options.max_bytes) {
    throw Error(ErrorCode::kLimit,
                fmt::format("a pickle of {} bytes, more than {}", source.size(), options.max_bytes));
  }
  Input input(source);
  return Machine(input, options, limits).run();
}

}  // namespace cairn::pickle
