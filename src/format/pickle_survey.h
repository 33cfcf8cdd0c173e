// One look at a part of a graph before something is made of it: would plain values say all there is, and what
// is reached on more than one way.
#pragma once

#include <cstdint>

#include "base/pod_vector.h"
#include "format/pickle.h"

namespace cairn::pickle {

class Survey {
 public:
  // What it needs is taken from the budget until it goes.
  Survey(const Graph& graph, Budget& budget, const Limits& limits);
  ~Survey() { budget_.give_back(taken_); }
  Survey(const Survey&) = delete;
  Survey& operator=(const Survey&) = delete;

  // Looks at `part`, and forgets what it saw before. True: it is numbers, strings, bytes, and tuples, lists
  // and dicts of them, each in one place only, and the keys of dicts are strings and 64-bit integers. Error
  // kLimit when it is nested deeper than limits.depth.
  bool is_plain(Ref part);
  // Reached twice in that part: two names for one thing, or a thing that is inside itself.
  bool is_shared(Ref ref) const { return has_place(ref) && test(shared_, ref); }

 private:
  using Bits = PodVector<std::uint64_t>;  // one for each word of the graph
  static bool has_place(Ref ref);
  static bool test(const Bits& bits, Ref ref) {
    return (bits[(ref.bits >> 4) / 64] >> ((ref.bits >> 4) % 64) & 1U) != 0;
  }
  static void set(Bits& bits, Ref ref) { bits[(ref.bits >> 4) / 64] |= 1ULL << ((ref.bits >> 4) % 64); }
  void take(std::uint64_t bytes) {
    budget_.take(bytes);
    taken_ += bytes;
  }
  bool is_new(Ref ref);
  void look(Ref ref, std::uint32_t depth);
  void look_at_items(Ref ref, std::uint32_t depth);

  const Graph& graph_;
  Budget& budget_;
  const Limits& limits_;
  bool plain_ = true;
  std::uint64_t taken_ = 0;
  Bits seen_, shared_;
  PodVector<Ref> touched_;  // those whose bits are set
  std::uint64_t paid_ = 0;  // of them
};

}  // namespace cairn::pickle
