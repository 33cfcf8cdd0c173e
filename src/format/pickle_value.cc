// From a graph to plain values, and unknown objects to small pickles of their own.

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "cairn/error.h"
#include "format/pickle.h"
#include "format/pickle_survey.h"
#include "format/pickle_writer.h"

namespace cairn::pickle {
namespace {

// A value that is read can be written and read again: marks then nest as deep as values do. A tensor is
// written as a call, with its storage's description inside.
constexpr std::uint32_t kLeafDepth = 2;

// What protocol 2 has to write as a call lies in the tuple of its arguments, two levels down.
constexpr std::uint32_t kCallDepth = 2;

// Walks one part of a graph. Depth, memory and the number of visits are bounded, so shared and even circular
// parts end in an error, not in endless work. Whoever holds a value has paid for its own size; it pays for
// what lies behind it.
class Walk {
 public:
  Walk(const Graph& graph, const LeafReader& leaf, Budget& budget, const Limits& limits)
      : graph_(graph),
        leaf_(leaf),
        budget_(budget),
        limits_(limits),
        visits_left_(4 * graph.opcodes() + 16) {}

  Value value(Ref ref, std::uint32_t depth);
  // An Opaque in which what `survey` found shared is there once.
  Value whole(Ref ref, const Survey& survey) {
    survey_ = &survey;
    return opaque(ref, 0);
  }

 private:
  void check_depth(std::uint32_t depth) const {
    if (depth > limits_.depth)
      throw Error(ErrorCode::kLimit, fmt::format("an object nested deeper than {}", limits_.depth));
  }
  void enter(std::uint32_t depth) {
    check_depth(depth);
    if (visits_left_-- == 0)
      throw Error(ErrorCode::kLimit, "an object that unfolds to far more than was stored");
    budget_.take_visit();
  }
  std::string text_of(Ref ref) {
    const std::string_view text = graph_.text(ref);
    budget_.take(text_bytes(text));
    return std::string(text);
  }
  bool dict(Ref ref, std::uint32_t depth, Dict& out);
  Value known_object(Ref ref, std::uint32_t depth);
  Value opaque(Ref ref, std::uint32_t depth);
  std::string class_name(Ref ref) const;
  void pay_to_emit(std::uint64_t bytes);
  void emit(Writer& writer, Ref ref, std::uint32_t depth);
  void emit_new(Writer& writer, Ref ref, std::uint32_t depth);
  bool recall(Writer& writer, Ref ref);
  void remember(Writer& writer, Ref ref);
  void emit_object(Writer& writer, Ref ref, std::uint32_t depth);

  const Graph& graph_;
  const LeafReader& leaf_;
  Budget& budget_;
  const Limits& limits_;
  std::uint64_t visits_left_;
  std::uint64_t emitting_ = 0;  // taken for the pickle that is being written
  const Survey* survey_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // in the memo of that pickle, of what is shared
};

Value Walk::value(Ref ref, std::uint32_t depth) {
  enter(depth);
  switch (ref.kind()) {
    case Kind::kNone: return None{};
    case Kind::kTrue: return true;
    case Kind::kFalse: return false;
    case Kind::kInt: return graph_.integer(ref);
    case Kind::kBigInt:
      if (graph_.is_integer(ref)) return graph_.integer(ref);
      return BigInt{text_of(ref)};
    case Kind::kFloat: return graph_.real(ref);
    case Kind::kString: return text_of(ref);
    case Kind::kBytes: return Bytes{text_of(ref)};
    case Kind::kTuple:
    case Kind::kList: {
      budget_.take(block_bytes(graph_.size(ref) * sizeof(Value)));
      List items;
      items.reserve(graph_.size(ref));
      graph_.each(ref, [&](Ref item) {
        items.push_back(value(item, depth + 1));
        return true;
      });
      if (ref.kind() == Kind::kTuple) return Tuple{std::move(items)};
      return items;
    }
    case Kind::kDict: {
      Dict out;
      if (dict(ref, depth, out)) return out;
      return opaque(ref, depth);
    }
    case Kind::kSet: return opaque(ref, depth);
    default: {
      Value made;
      if (leaf_ && leaf_(graph_, ref, made)) {
        check_depth(depth + kLeafDepth);
        return made;
      }
      if (ref.kind() == Kind::kObject) return known_object(ref, depth);
      return opaque(ref, depth);
    }
  }
}

// False when a key is neither a string nor a 64-bit integer.
bool Walk::dict(Ref ref, std::uint32_t depth, Dict& out) {
  budget_.take(dict_bytes(graph_.size(ref) / 2));
  out.reserve(graph_.size(ref) / 2);
  bool plain = true;
  Ref key;
  std::size_t position = 0;
  graph_.each(ref, [&](Ref element) {
    if (position++ % 2 == 0) {
      key = element;
      plain = key.kind() == Kind::kString || graph_.is_integer(key);
      return plain;
    }
    Key name = key.kind() == Kind::kString ? Key(text_of(key)) : Key(graph_.integer(key));
    out.set(std::move(name), value(element, depth + 1));
    return true;
  });
  return plain;
}

// The few constructors that only rename plain data.
Value Walk::known_object(Ref ref, std::uint32_t depth) {
  const Ref callable = graph_.callable(ref);
  const Ref args = graph_.args(ref);
  if (callable.kind() == Kind::kGlobal && args.kind() == Kind::kTuple && !graph_.has_state(ref)) {
    if (graph_.size(args) == 2 && graph_.item(args, 0).kind() == Kind::kString)
      budget_.take(2 * text_bytes(graph_.text(graph_.item(args, 0))));  // a string that grows
    if (auto bytes = bytes_of_call(graph_, ref)) return Bytes{std::move(*bytes)};
    if (graph_.is_global(callable, "torch", "Size") && graph_.size(args) == 1 &&
        graph_.item(args, 0).kind() == Kind::kTuple) {
      return value(graph_.item(args, 0), depth + 1);
    }
  }
  return opaque(ref, depth);
}

std::string Walk::class_name(Ref ref) const {
  switch (ref.kind()) {
    case Kind::kObject:
      return graph_.callable(ref).kind() == Kind::kGlobal ? graph_.full_name(graph_.callable(ref)) : "object";
    case Kind::kGlobal: return graph_.full_name(ref);
    case Kind::kSet: return "builtins.set";
    case Kind::kDict: return "builtins.dict";
    default: return "object";
  }
}

Value Walk::opaque(Ref ref, std::uint32_t depth) {
  StringSink sink;
  Writer writer(sink, 2);
  emit(writer, ref, depth);
  writer.finish();
  budget_.give_back(std::exchange(emitting_, 0));
  sink.text.shrink_to_fit();
  Value made = Opaque{class_name(ref), std::move(sink.text)};
  budget_.take(heap_bytes(made));
  return made;
}

// A string that grows is there twice when it moves.
void Walk::pay_to_emit(std::uint64_t bytes) {
  budget_.take(2 * bytes);
  emitting_ += 2 * bytes;
}

// Whether it has been written before: then a reference is.
bool Walk::recall(Writer& writer, Ref ref) {
  const auto known = numbers_.find(ref.bits);
  if (known == numbers_.end()) return false;
  writer.fetch(known->second);
  return true;
}

// To be called when it lies on the stack, and before it is filled: it may be a part of itself.
void Walk::remember(Writer& writer, Ref ref) {
  if (survey_ == nullptr || !survey_->is_shared(ref)) return;
  constexpr std::uint64_t kNode = block_bytes(32) + 2 * sizeof(void*);
  pay_to_emit(kNode);
  numbers_[ref.bits] = writer.memoize();
}

void Walk::emit(Writer& writer, Ref ref, std::uint32_t depth) {
  if (survey_ != nullptr && survey_->is_shared(ref) && recall(writer, ref)) return;
  emit_new(writer, ref, depth);
  switch (ref.kind()) {
    case Kind::kBigInt:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kTuple:
    case Kind::kSet: remember(writer, ref); return;
    default: return;  // the others did when they were begun
  }
}

void Walk::emit_new(Writer& writer, Ref ref, std::uint32_t depth) {
  enter(depth);
  constexpr std::uint64_t kMostForAnOpcode = 16;
  pay_to_emit(kMostForAnOpcode);
  const auto emit_items = [&](Ref container, std::uint32_t levels = 1) {
    graph_.each(container, [&](Ref item) {
      emit(writer, item, depth + levels);
      return true;
    });
  };
  switch (ref.kind()) {
    case Kind::kNone: writer.none(); return;
    case Kind::kTrue: writer.boolean(true); return;
    case Kind::kFalse: writer.boolean(false); return;
    case Kind::kInt: writer.integer(graph_.integer(ref)); return;
    case Kind::kBigInt:
      pay_to_emit(graph_.text(ref).size());
      writer.big_integer(graph_.text(ref));
      return;
    case Kind::kFloat: writer.real(graph_.real(ref)); return;
    case Kind::kString:
      pay_to_emit(graph_.text(ref).size());
      writer.string(graph_.text(ref));
      return;
    case Kind::kBytes:
      check_depth(depth + kCallDepth);
      pay_to_emit(2 * graph_.text(ref).size() + 64);  // as text in UTF-8, and a call
      writer.bytes(graph_.text(ref));
      return;
    case Kind::kGlobal:
      pay_to_emit(graph_.module(ref).size() + graph_.name(ref).size());
      writer.global(graph_.module(ref), graph_.name(ref));
      return;
    case Kind::kTuple: {
      const std::size_t size = graph_.size(ref);
      if (size > 3) writer.mark();
      emit_items(ref);
      size > 3 ? writer.tuple() : writer.tuple(size);
      return;
    }
    case Kind::kList:
      writer.empty_list();
      remember(writer, ref);
      writer.mark();
      emit_items(ref);
      writer.appends();
      return;
    case Kind::kDict:
      if (graph_.is_ordered_dict(ref)) {
        writer.global("collections", "OrderedDict");
        writer.tuple(0);
        writer.reduce();
      } else {
        writer.empty_dict();
      }
      remember(writer, ref);
      writer.mark();
      emit_items(ref);
      writer.setitems();
      return;
    case Kind::kSet:  // set([...]), as protocol 2 writes it
      check_depth(depth + kCallDepth);
      writer.global("builtins", "set");
      writer.empty_list();
      writer.mark();
      emit_items(ref, kCallDepth + 1);
      writer.appends();
      writer.tuple(1);
      writer.reduce();
      return;
    case Kind::kPersid:
      emit(writer, graph_.payload(ref), depth + 1);
      writer.persid();
      return;
    case Kind::kObject: emit_object(writer, ref, depth); return;
    case Kind::kHandle:
      throw Error(ErrorCode::kUnsupported, "an object of DCP's own inside one that is kept as it is");
  }
}

void Walk::emit_object(Writer& writer, Ref ref, std::uint32_t depth) {
  emit(writer, graph_.callable(ref), depth + 1);
  emit(writer, graph_.args(ref), depth + 1);
  graph_.is_new(ref) ? writer.newobj() : writer.reduce();
  remember(writer, ref);
  const auto emit_items = [&](Ref container, void (Writer::*finish)()) {
    if (container.kind() == Kind::kNone) return;
    writer.mark();
    graph_.each(container, [&](Ref item) {
      emit(writer, item, depth + 1);
      return true;
    });
    (writer.*finish)();
  };
  emit_items(graph_.list_items(ref), &Writer::appends);
  emit_items(graph_.dict_items(ref), &Writer::setitems);
  if (graph_.has_state(ref)) {
    emit(writer, graph_.state(ref), depth + 1);
    writer.build();
  }
}

}  // namespace

// Protocol 2 has no bytes: Python writes _codecs.encode(text, "latin1"), and bytes() for none.
std::optional<std::string> bytes_of_call(const Graph& graph, Ref object) {
  const Ref callable = graph.callable(object);
  const Ref args = graph.args(object);
  if (graph.has_state(object) || args.kind() != Kind::kTuple) return std::nullopt;
  if (graph.is_global(callable, "builtins", "bytes") && graph.size(args) == 0) return std::string();
  if (!graph.is_global(callable, "_codecs", "encode") || graph.size(args) != 2 ||
      graph.item(args, 0).kind() != Kind::kString)
    return std::nullopt;
  return utf8_to_latin1(graph.text(graph.item(args, 0)));
}

Value to_value(const Graph& graph, Ref ref, const LeafReader& leaf, Budget& budget, const Limits& limits) {
  return Walk(graph, leaf, budget, limits).value(ref, 0);
}

Value to_value(const Graph& graph, Ref ref, const LeafReader& leaf, const Limits& limits) {
  Budget budget(graph.bytes(), limits);
  budget.take(graph.memory());
  return to_value(graph, ref, leaf, budget, limits);
}

Value to_whole_value(const Graph& graph, Ref ref, Survey& survey, Budget& budget, const Limits& limits) {
  if (survey.is_plain(ref)) return to_value(graph, ref, {}, budget, limits);
  return Walk(graph, {}, budget, limits).whole(ref, survey);
}

}  // namespace cairn::pickle
