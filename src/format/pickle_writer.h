// Writes pickles: protocol 4 for .metadata, protocol 2 for data.pkl in the subset that PyTorch's
// weights_only reader accepts.
//
// One call an opcode, values before the opcode that takes them, as in the pickle itself:
//
//   Writer w(sink, 2);
//   w.mark(); w.string("lr"); w.real(0.1); w.dict();      // {"lr": 0.1}
//   w.finish();
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/name_table.h"
#include "base/sink.h"
#include "cairn/state_dict.h"

namespace cairn::pickle {

class Writer {
 public:
  Writer(ByteSink& sink, int protocol);

  void none();
  void boolean(bool v);
  void integer(std::int64_t v);
  void big_integer(std::string_view twos_complement);
  void real(double v);
  void string(std::string_view text);         // not memoised
  void shared_string(std::string_view text);  // memoised: repeated uses become a reference
  void bytes(std::string_view data);          // protocol 2: by _codecs.encode, as Python does
  void global(std::string_view module, std::string_view name);  // memoised
  void mark();
  void tuple(std::size_t size);  // of the last `size` <= 3 values; 0 for an empty tuple, no mark needed
  void tuple();                  // of everything since mark()
  void empty_list();
  void appends();  // everything since mark() onto the list below it
  void empty_dict();
  void setitems();  // key, value, ... since mark() into the dict (or object) below it
  void reduce();    // callable, argument tuple -> result
  void newobj();    // class, argument tuple -> object
  void build();     // object, state -> object
  void persid();    // id value -> persistent object
  // A value memoised earlier, by its number; and the number of what was memoised last.
  void fetch(std::uint32_t number);
  std::uint32_t memoize();  // the value just written; returns its number
  std::uint32_t last_memo() const { return memo_size_ - 1; }
  // Opcodes that take nothing of the above into account: no memo, no operands left open.
  void raw(std::string_view opcodes) { buffer_.append(opcodes); }
  // Splices a complete pickle of this protocol or lower (PROTO ... STOP), memo indices moved past ours.
  void splice(std::string_view pickle);

  // Any plain value: containers, numbers, strings, Opaque. Error kInvalidArgument for tensors: the
  // caller writes those. Error kLimit for one that is nested deeper than values may be (state/nesting.h).
  using TensorWriter = std::function<void(Writer&, const Value&)>;
  void value(const Value& v, const TensorWriter& tensors = {}) { nested(v, tensors, 0); }

  void finish();  // STOP, and everything to the sink

 private:
  void op(char code) {
    if (buffer_.size() >= kFlush) flush();
    buffer_.push_back(code);
  }
  template <class T> void number(char code, T v);
  void flush();
  void nested(const Value& v, const TensorWriter& tensors, int depth);
  bool recall(std::uint32_t name);

  static constexpr std::size_t kFlush = 1 << 20;
  static constexpr std::size_t kBatch = 1000;  // items between MARK and APPENDS, as CPython does
  ByteSink& sink_;
  int protocol_;
  std::string buffer_;
  NameTable names_;                   // strings and classes that may come again
  PodVector<std::uint32_t> numbers_;  // the memo number of each, kNotYet before its first use
  std::uint32_t memo_size_ = 0;
  static constexpr std::uint32_t kNotYet = ~std::uint32_t{0};
};

}  // namespace cairn::pickle
