// A pickle, read without running anything.
//
// Python's pickle is a program for a stack machine. This machine knows a fixed set of opcodes and builds
// plain data: a Graph of numbers, strings, containers, and descriptions of objects ("class C, called
// with these arguments, then given this state"). It never looks a class up and never calls one.
//
// Everything lives in one array of words, so a Graph is freed at once and a hostile file cannot make the
// destructor recurse.
//
// Whoever reads a pickle of millions of small objects gives the machine a Reducer. It turns each object of
// a known class into a handle as soon as it is complete; and where objects are written in the one form
// CPython gives them, it takes the values straight from the program (Cursor), without opcode by opcode.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/pod_vector.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/state_dict.h"
#include "format/budget.h"

namespace cairn::pickle {

enum class Kind : std::uint8_t {
  kNone,
  kTrue,
  kFalse,
  kInt,
  kBigInt,
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,  // also collections.OrderedDict
  kSet,
  kGlobal,  // a class or function, by name only
  kObject,  // callable(args), then state, then items
  kPersid,  // torch's storages: a reference out of the pickle
  kHandle,  // made by a Reducer
};

// A value in a Graph. Small ones are inside the word, others are an index into the Graph's words.
struct Ref {
  std::uint64_t bits = 0;
  Kind kind() const { return static_cast<Kind>(bits & 15); }
  bool operator==(const Ref&) const = default;
};

class Graph {
 public:
  Ref root() const { return root_; }

  // kInt, and a kBigInt that fits in 64 bits.
  bool is_integer(Ref r) const;
  std::int64_t integer(Ref r) const;
  double real(Ref r) const;                 // kFloat
  std::string_view text(Ref r) const;       // kString (UTF-8), kBytes, kBigInt (little-endian)
  Ref payload(Ref r) const;                 // kPersid
  std::uint32_t handle_type(Ref r) const;   // kHandle
  std::uint64_t handle_index(Ref r) const;  // kHandle

  // Containers. A dict's elements are key, value, key, value...; size() counts elements.
  std::size_t size(Ref r) const;
  Ref item(Ref tuple, std::size_t i) const;  // kTuple only
  // Calls f(Ref) for each element, in order. `f` returns false to stop.
  template <class F> void each(Ref r, F&& f) const;
  // An attribute, by its name: false when absent, Error kCorrupt when it is there twice.
  bool find(Ref dict, std::string_view key, Ref& value) const;
  bool is_ordered_dict(Ref dict) const;

  // kGlobal: names. Protocol 2's __builtin__, copy_reg are given as builtins, copyreg.
  std::string_view module(Ref global) const;
  std::string_view name(Ref global) const;
  bool is_global(Ref r, std::string_view module, std::string_view name) const;
  std::string full_name(Ref global) const;  // "module.name"

  // kObject. state, list_items and dict_items are kNone / empty when not given.
  Ref callable(Ref object) const;
  Ref args(Ref object) const;
  bool has_state(Ref object) const;
  Ref state(Ref object) const;
  Ref list_items(Ref object) const;  // a kList, or kNone
  Ref dict_items(Ref object) const;  // a kDict, or kNone
  bool is_new(Ref object) const;     // made by NEWOBJ (cls.__new__), not by a plain call

  std::uint64_t opcodes() const { return opcodes_; }
  std::uint64_t bytes() const { return bytes_; }  // of the program
  std::uint64_t memory() const { return (words_.size() + globals_.size()) * sizeof(std::uint64_t); }

 private:
  friend class Machine;

  const std::uint64_t* words(Ref r) const { return words_.data() + (r.bits >> 4); }

  PodVector<std::uint64_t> words_;
  PodVector<std::uint64_t> globals_;  // pairs of string refs: module, name
  Ref root_;
  std::uint64_t opcodes_ = 0;
  std::uint64_t bytes_ = 0;
};

class Cursor;

// Turns objects into handles. Views into the graph are valid during the call only.
class Reducer {
 public:
  virtual ~Reducer() = default;
  // Is this global one of the reducer's? Its number from 1 on; 0 for "not mine". Asked once per global.
  virtual std::uint32_t class_id(std::string_view module, std::string_view name) = 0;
  // callable(args) without state so far, by REDUCE. Returns true and sets `made` to a handle.
  virtual bool called(const Graph& graph, std::uint32_t class_id, Ref args, Ref& made) = 0;
  // BUILD of an object made by NEWOBJ or REDUCE.
  virtual bool built(const Graph& graph, std::uint32_t class_id, Ref args, Ref state, Ref& made) = 0;
  // The program has just fetched this class from the memo. If what follows makes one object of it in a
  // form the reducer knows by heart, it moves `at` behind that and sets `made`; else it returns false,
  // and the machine goes on opcode by opcode from where it was. Nothing it noted on a failed try may show.
  virtual bool recognize(const Graph&, std::uint32_t, Cursor&, Ref&) { return false; }

  static Ref handle(std::uint32_t type, std::uint64_t index) {  // type < 256, index < 2^52
    return Ref{index << 12 | std::uint64_t{type} << 4 | static_cast<std::uint64_t>(Kind::kHandle)};
  }
};

enum class Dialect {
  kMetadata,  // a .metadata file: the opcodes CPython emits for plain classes
  kTorch,     // data.pkl of torch.save: those and persistent ids
};

struct Options {
  Dialect dialect = Dialect::kTorch;
  std::uint64_t max_bytes = 64ULL << 20;
  Reducer* reducer = nullptr;
  bool plain = false;        // opcode by opcode only, never by Reducer::recognize: slower, the same result
  Budget* budget = nullptr;  // what the graph takes comes out of it; null: one of its own
};

// Reads one pickle that fills the source. Error kCorrupt (with the offset) for a broken pickle,
// kUnsupported for an opcode or protocol outside the fixed set, kLimit for one beyond `limits`.
Graph read(const ByteSource& source, const Options& options, const Limits& limits = {});

// Walks a graph into plain values. `leaf` is asked first about every kObject, kPersid, kGlobal and
// kHandle and returns true if it made a Value; what nobody knows becomes an Opaque with a pickle of its
// own. Error kLimit when the graph is deeper than limits.depth, revisits shared parts too often ("billion
// laughs"), or when the values take more than is left of the budget. A leaf pays for itself.
using LeafReader = std::function<bool(const Graph&, Ref, Value&)>;
Value to_value(const Graph& graph, Ref ref, const LeafReader& leaf, Budget& budget,
               const Limits& limits = {});
// The same with what the graph leaves of a budget of its own.
Value to_value(const Graph& graph, Ref ref, const LeafReader& leaf, const Limits& limits = {});

// The same for what must come back just as it was: plain values if they say all there is, else one Opaque, in
// which what is shared stays so, and what is inside itself too.
class Survey;  // format/pickle_survey.h
Value to_whole_value(const Graph& graph, Ref ref, Survey& survey, Budget& budget, const Limits& limits);

// The bytes that a call in the pickle stands for: protocol 2 has no others. Nothing for any other object.
std::optional<std::string> bytes_of_call(const Graph& graph, Ref object);

// The program, one line an opcode, for people: "   12: BINUNICODE 'lr'". At most `max_lines`. Never fails:
// at a broken place it says so and stops.
std::string disassemble(ByteSpan pickle, std::size_t max_lines = 1000);

template <class F> void Graph::each(Ref r, F&& f) const {
  // The layout is that of pickle_layout.h.
  if (r.kind() == Kind::kTuple) {
    const std::uint64_t* w = words(r);
    for (std::uint64_t i = 0; i < w[0]; ++i)
      if (!f(Ref{w[1 + i]})) return;
    return;
  }
  for (std::uint64_t at = words(r)[1]; at != 0;) {
    const std::uint64_t* segment = words_.data() + at;
    for (std::uint64_t i = 0; i < segment[0]; ++i)
      if (!f(Ref{segment[2 + i]})) return;
    at = segment[1];
  }
}

}  // namespace cairn::pickle
