// What was memoised, and how to find it again inside objects that were recognised whole.

#include <utility>

#include "format/pickle_machine.h"

namespace cairn::pickle {

void Machine::remember(std::uint64_t number, Ref value) {
  if (number > memo_count_ + limits_.memo_slack) {
    fail(ErrorCode::kLimit,
         fmt::format("memo number {} runs far ahead of the {} given so far", number, memo_count_));
  }
  // Nobody writes this, and what it means would depend on the reader.
  if (!recovering_ && (number < memo_count_ || (number < memo_top_ && memo_.get(number) != Memo::kUnset))) {
    fail(ErrorCode::kCorrupt, fmt::format("memo number {} is given twice, or out of order", number));
  }
  ++memo_count_;
  memo_top_ = std::max(memo_top_, number + 1);
  if (!memo_.has_room_for(number)) pay(Memo::kPageBytes);
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

// `p` is just behind the fetch of a class. Returns the place behind the object, or `p` itself.
const std::byte* Machine::try_recognize(const std::byte* p, Ref global) {
  const std::uint32_t id = class_ids_[global.bits >> 4];
  if (id == 0 || recovering_ || options_.plain || memo_top_ > memo_count_) return p;
  if (p > frame_end_ && frame_end_ != input_.begin()) return p;  // the fetch crosses the end of its frame
  Cursor cursor(*this, p, memo_count_, frame_end_);
  Ref made;
  if (!options_.reducer->recognize(graph_, id, cursor, made)) return p;
  const auto begin = static_cast<std::uint64_t>(op_at_ - input_.begin());
  note_stretch(begin, static_cast<std::uint64_t>(cursor.place() - input_.begin()), memo_count_);
  memo_top_ = memo_count_ = cursor.memo_count();
  leave_frame(p, cursor);
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
  PodVector<Fetched> fetched;
  std::swap(stack, stack_);
  std::swap(marks, marks_);
  std::swap(fetched, fetched_);
  const std::uint64_t floor = std::exchange(floor_, 0);
  const std::uint64_t count = std::exchange(memo_count_, stretch.first_number);
  const std::byte* const op_at = op_at_;
  const std::byte* const safe = safe_;
  const std::byte* const frame_end = std::exchange(frame_end_, input_.begin());
  recovering_ = true;
  input_.restore(stretch.begin, stretch.end);
  safe_ = input_.begin() + stretch.end;
  stop_ = input_.begin();
  execute(input_.begin() + stretch.begin, input_.begin() + stretch.end);
  recovering_ = false;
  std::swap(stack, stack_);
  std::swap(marks, marks_);
  std::swap(fetched, fetched_);
  floor_ = floor;
  memo_count_ = count;
  op_at_ = op_at;
  safe_ = safe;
  stop_ = input_.begin();
  frame_end_ = frame_end;
}

// An object that was recognised whole may run past the end of a frame, but none of its opcodes may.
void Machine::leave_frame(const std::byte* from, const Cursor& at) {
  if (frame_end_ != at.frame_end()) stop_ = input_.begin();
  frame_end_ = at.frame_end();
  if (frame_end_ < from || at.place() <= frame_end_) return;
  const auto edge = static_cast<std::uint64_t>(frame_end_ - from);
  const std::string_view object = as_text({from, at.place()});
  std::uint64_t next = 0;
  while (next < edge) next = decode(object, next).value().next;
  if (next != edge) fail(ErrorCode::kCorrupt, "an opcode crosses the end of its FRAME");
  frame_end_ = input_.begin();
}

}  // namespace cairn::pickle
