// The loop over the opcodes.

#include "format/pickle_machine.h"

#include <bit>

namespace cairn::pickle {
namespace {

bool can_be_filled(Kind kind) {
  return kind == Kind::kList || kind == Kind::kDict || kind == Kind::kSet || kind == Kind::kObject;
}

double big_endian_double(const std::byte* p) {
  return std::bit_cast<double>(__builtin_bswap64(load<std::uint64_t>(p)));
}

}  // namespace

void Machine::bring(const std::byte* p, std::uint64_t bytes) {
  if (safe_ < input_.end() && p + bytes > safe_) safe_ = input_.bring(op_at_, p, bytes + Input::kSlack);
}

void Machine::pay_for_words(std::uint64_t n) {
  constexpr std::uint64_t kStep = 8192;  // seldom, and not much more than is needed
  const std::uint64_t words = std::max(n, kStep);
  pay(words * sizeof(std::uint64_t));
  paid_words_ += words;
}

void Machine::refuse_to_pay() const {
  try {
    budget_.refuse();
  } catch (Error& e) {
    e.at(static_cast<std::uint64_t>(op_at_ - input_.begin()));
    throw;
  }
}

// A tuple of any length waits on the stack of torch.save, if the file may take the memory.
void Machine::lengthen_stack() {
  if (options_.dialect == Dialect::kMetadata) fail(ErrorCode::kLimit, "too many values on the pickle stack");
  const std::uint64_t more = stack_limit_;
  pay(more * sizeof(std::uint64_t));
  stack_limit_ += more;
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

// Where the frame ends whose FRAME is at `p`; null when that is past the end of the program.
const std::byte* Machine::frame_end(const std::byte* p) {
  constexpr std::ptrdiff_t kFrameBytes = 9;
  if (input_.end() - p < kFrameBytes) return nullptr;
  const auto length = load<std::uint64_t>(p + 1);
  return length > static_cast<std::uint64_t>(input_.end() - p - kFrameBytes) ? nullptr
                                                                             : p + kFrameBytes + length;
}

void Machine::open_frame(const std::byte* p) {
  if (frame_end_ != input_.begin()) fail(ErrorCode::kCorrupt, "a FRAME inside a FRAME");
  frame_end_ = frame_end(p);
  if (frame_end_ == nullptr) fail(ErrorCode::kCorrupt, "a FRAME longer than the rest of the pickle");
  stop_ = input_.begin();
}

// Brings more of the program in. Called at the end of a frame too, so that opcodes that cross it are found:
// one of Python's two readers refuses them, the other does not.
void Machine::look_ahead(const std::byte* p) {
  if (p >= frame_end_) {
    if (p > frame_end_ && frame_end_ != input_.begin())
      fail(ErrorCode::kCorrupt, "an opcode crosses the end of its FRAME");
    frame_end_ = input_.begin();
  }
  if (p >= input_.end())
    fail(ErrorCode::kCorrupt, "the pickle ends in the middle of an opcode or without STOP");
  if (p >= safe_) safe_ = input_.bring(p, p, Input::kSlack);
  stop_ = frame_end_ > p ? std::min(safe_, frame_end_) : safe_;
}

Graph Machine::run() {
  *new_words(1) = 0;
  safe_ = stop_ = frame_end_ = input_.begin();
  graph_.bytes_ = input_.size();
  execute(input_.begin(), nullptr);
  budget_.give_back((paid_words_ - graph_.words_.size()) * sizeof(std::uint64_t) + memo_.memory());
  return std::move(graph_);
}

// Runs from `p` up to STOP, or up to `until` when that is given.
const std::byte* Machine::execute(const std::byte* p, const std::byte* until) {
  const std::byte* const begin = input_.begin();
  std::uint64_t first = 0;

  for (;;) {
    if (p >= stop_) {
      if (until != nullptr && p >= until) return p;
      op_at_ = p;
      look_ahead(p);
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
        open_frame(op_at_);
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
        if (p < stop_ && *p == std::byte{kMemoize}) {  // as nearly always
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
        must_be_new(stack_.size() - 1);
        append(list_to_append_to(top()), &item.bits, 1);
        break;
      }
      case kAppends: {
        first = pop_mark();
        if (first <= floor_) fail(ErrorCode::kCorrupt, "APPENDS without a list");
        must_be_new(first - 1);
        append(list_to_append_to(Ref{stack_[first - 1]}), stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        break;
      }
      case kAddItems: {
        first = pop_mark();
        if (first <= floor_ || Ref{stack_[first - 1]}.kind() != Kind::kSet)
          fail(ErrorCode::kCorrupt, "ADDITEMS without a set");
        must_be_new(first - 1);
        append(Ref{stack_[first - 1]}, stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        break;
      }
      case kFrozenSet: {
        first = pop_mark();
        const Ref made = frozenset_node(stack_.data() + first, stack_.size() - first);
        stack_.truncate(first);
        push(made);
        break;
      }
      case kSetItem: {
        need(3);
        must_be_new(stack_.size() - 3);
        append(dict_to_set_in(Ref{stack_[stack_.size() - 3]}), stack_.end() - 2, 2);
        stack_.truncate(stack_.size() - 2);
        break;
      }
      case kSetItems: {
        first = pop_mark();
        if (first <= floor_) fail(ErrorCode::kCorrupt, "SETITEMS without a dict");
        if ((stack_.size() - first) % 2 != 0)
          fail(ErrorCode::kCorrupt, "SETITEMS with a key that has no value");
        must_be_new(first - 1);
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
        if (can_be_filled(value.kind()) && options_.dialect == Dialect::kMetadata) note_fetched();
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
