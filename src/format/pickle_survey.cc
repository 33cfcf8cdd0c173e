#include "format/pickle_survey.h"

#include <fmt/format.h>

#include "cairn/error.h"

namespace cairn::pickle {

Survey::Survey(const Graph& graph, Budget& budget, const Limits& limits)
    : graph_(graph), budget_(budget), limits_(limits) {
  const std::uint64_t words = graph.memory() / sizeof(std::uint64_t) / 64 + 1;
  take(2 * words * sizeof(std::uint64_t));
  seen_.resize(words, 0);
  shared_.resize(words, 0);
}

bool Survey::is_plain(Ref part) {
  for (const Ref ref : touched_) seen_[(ref.bits >> 4) / 64] = shared_[(ref.bits >> 4) / 64] = 0;
  touched_.clear();
  plain_ = true;
  look(part, 0);
  return plain_;
}

// What lies in the graph's words, and is worth being there once: the rest is as small as a reference to it.
bool Survey::has_place(Ref ref) {
  switch (ref.kind()) {
    case Kind::kBigInt:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kSet:
    case Kind::kObject: return true;
    case Kind::kTuple: return ref.bits >> 4 != 0;  // not the empty one
    default: return false;
  }
}

bool Survey::is_new(Ref ref) {
  if (test(seen_, ref)) {
    set(shared_, ref);
    const bool is_text =
        ref.kind() == Kind::kString || ref.kind() == Kind::kBytes || ref.kind() == Kind::kBigInt;
    if (!is_text) plain_ = false;
    return false;
  }
  if (touched_.size() == paid_) {
    constexpr std::uint64_t kStep = 1024;
    take(2 * kStep * sizeof(Ref));  // an array that grows
    paid_ += kStep;
  }
  touched_.push_back(ref);
  set(seen_, ref);
  return true;
}

void Survey::look(Ref ref, std::uint32_t depth) {
  if (depth > limits_.depth)
    throw Error(ErrorCode::kLimit, fmt::format("an object nested deeper than {}", limits_.depth));
  budget_.take_visit();
  if (has_place(ref) && !is_new(ref)) return;
  switch (ref.kind()) {
    case Kind::kTuple:
    case Kind::kList: look_at_items(ref, depth + 1); return;
    case Kind::kDict: {
      if (graph_.is_ordered_dict(ref)) plain_ = false;
      std::size_t position = 0;
      graph_.each(ref, [&](Ref element) {
        if (position++ % 2 == 0 && element.kind() != Kind::kString && !graph_.is_integer(element))
          plain_ = false;
        return plain_;
      });
      look_at_items(ref, depth + 1);
      return;
    }
    case Kind::kSet:
      plain_ = false;
      look_at_items(ref, depth + 1);
      return;
    case Kind::kObject:
      plain_ = false;
      look(graph_.args(ref), depth + 1);
      for (const Ref items : {graph_.list_items(ref), graph_.dict_items(ref)})
        if (items.kind() != Kind::kNone) look_at_items(items, depth + 1);
      if (graph_.has_state(ref)) look(graph_.state(ref), depth + 1);
      return;
    case Kind::kPersid:
      plain_ = false;
      look(graph_.payload(ref), depth + 1);
      return;
    case Kind::kGlobal:
    case Kind::kHandle: plain_ = false; return;
    default: return;
  }
}

void Survey::look_at_items(Ref ref, std::uint32_t depth) {
  graph_.each(ref, [&](Ref item) {
    look(item, depth);
    return true;
  });
}

}  // namespace cairn::pickle
