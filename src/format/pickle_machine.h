// The machine that runs a pickle's program: a stack of words, a memo, and the graph it fills.
//
// Its parts: pickle_machine.cc has the loop over the opcodes, pickle_nodes.cc makes and changes values,
// pickle_memo.cc keeps what was memoised, also inside objects that were recognised whole.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cairn/error.h"
#include "format/pickle.h"
#include "format/pickle_cursor.h"
#include "format/pickle_input.h"
#include "format/pickle_layout.h"
#include "format/pickle_memo.h"
#include "format/pickle_ops.h"

namespace cairn::pickle {

class Machine final : private Cursor::Host {
 public:
  Machine(Input& input, const Options& options, const Limits& limits)
      : input_(input),
        options_(options),
        limits_(limits),
        string_limit_(options.dialect == Dialect::kTorch ? limits.torch_string_bytes : limits.string_bytes),
        own_budget_(input.size(), limits),
        budget_(options.budget == nullptr ? own_budget_ : *options.budget) {}

  Graph run();

 private:
  // Making values.
  std::uint64_t* new_words(std::uint64_t n) {
    if (graph_.words_.size() + n > paid_words_) pay_for_words(n);
    return graph_.words_.extend(n);
  }
  void pay_for_words(std::uint64_t n);
  void pay(std::uint64_t bytes) {
    if (!budget_.try_take(bytes)) refuse_to_pay();
  }
  [[noreturn]] void refuse_to_pay() const;
  Ref text_node(Kind kind, const std::byte* from, std::uint64_t length);
  Ref string_node(const std::byte* from, std::uint64_t length);
  Ref integer_node(const std::byte* from, std::uint64_t length);
  Ref tuple_node(const std::uint64_t* items, std::uint64_t count);
  Ref container_node(Kind kind, bool ordered = false);
  Ref global_node(Ref module, Ref name);
  Ref frozenset_node(const std::uint64_t* items, std::uint64_t count);
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
  const std::byte* frame_end(const std::byte* p) override;

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
    if (stack_.size() >= stack_limit_) lengthen_stack();
    stack_.push_back(r.bits);
  }
  void lengthen_stack();
  void need(std::uint64_t n) const {
    if (stack_.size() - floor_ < n) fail(ErrorCode::kCorrupt, "an opcode takes more values than there are");
  }
  Ref pop() {
    const Ref r{stack_.back()};
    stack_.pop_back();
    return r;
  }
  Ref& top() { return reinterpret_cast<Ref&>(stack_.back()); }
  // Containers of a .metadata are filled where they are made. One that is fetched again may be part of an
  // object the reducer is done with, which a change would not reach; Python would see it.
  void note_fetched() {
    while (!fetched_.empty() && fetched_.back().position >= stack_.size() - 1) fetched_.pop_back();
    fetched_.push_back({stack_.size() - 1, top().bits});
  }
  void must_be_new(std::uint64_t position) const {
    const Fetched* at = std::lower_bound(fetched_.begin(), fetched_.end(), position,
                                         [](const Fetched& f, std::uint64_t p) { return f.position < p; });
    if (at != fetched_.end() && at->position == position && at->bits == stack_[position])
      fail(ErrorCode::kUnsupported, "a container is changed after it was used");
  }
  void mark();
  std::uint64_t pop_mark();  // position of the first value above the mark

  const std::byte* take_text(const std::byte* p, std::uint64_t length);
  const std::byte* take_lines(const std::byte* p);
  void open_frame(const std::byte* p);
  void leave_frame(const std::byte* from, const Cursor& at);
  void look_ahead(const std::byte* p);
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
  std::uint64_t stack_limit_ = limits_.pickle_stack;
  Budget own_budget_;
  Budget& budget_;
  std::uint64_t paid_words_ = 0;
  Graph graph_;
  PodVector<std::uint64_t> stack_;
  PodVector<std::uint64_t> marks_;
  Ref frozenset_;                       // the class, once it was needed
  PodVector<std::uint32_t> class_ids_;  // of each global, for the reducer
  Memo memo_;
  PodVector<Stretch> stretches_;
  struct Fetched {
    std::uint64_t position, bits;  // on the stack
  };
  PodVector<Fetched> fetched_;    // from the memo, by position; some have left the stack
  std::uint64_t floor_ = 0;       // stack size at the last mark
  std::uint64_t memo_count_ = 0;  // numbers given so far
  std::uint64_t memo_top_ = 0;    // above all of them; more than their count when some were left out
  bool recovering_ = false;
  bool last_text_is_ascii_ = true;
  const std::byte* op_at_ = nullptr;
  const std::byte* safe_ = nullptr;
  const std::byte* stop_ = nullptr;       // look_ahead is due from here on: at safe_ or at frame_end_
  const std::byte* frame_end_ = nullptr;  // of the open frame; the program's begin when there is none
};

}  // namespace cairn::pickle
