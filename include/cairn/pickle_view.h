// The parts of a pickle, for those who make objects of their own kind of it. Nothing in it is run or looked
// up.
//
//   PickleView view(opaque.pickle);
//   if (view.kind(view.root()) == PickleView::Kind::kObject) print(view.module(view.root()),
//   view.name(view.root()));
//
// Parts may be shared, and may be inside themselves: whoever walks down has to keep count.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/limits.h"

namespace cairn {

class PickleView {
 public:
  enum class Kind {
    kNone,
    kTrue,
    kFalse,
    kInt,
    kBigInt,  // beyond 64 bits
    kFloat,
    kString,
    kBytes,
    kTuple,
    kList,
    kDict,
    kOrderedDict,
    kSet,
    kClass,   // a class or function, by name only
    kObject,  // a class, called with arguments, and then given a state
  };
  struct Part {
    std::uint64_t id = 0;  // equal: the same object
  };

  // Error kCorrupt, kUnsupported or kLimit for a pickle that is none, or beyond what a .metadata may have.
  explicit PickleView(std::string_view pickle, const Limits& limits = {});
  PickleView(PickleView&&) noexcept;
  PickleView& operator=(PickleView&&) noexcept;
  ~PickleView();

  Part root() const;
  Kind kind(Part part) const;
  std::int64_t integer(Part part) const;  // kInt
  double real(Part part) const;           // kFloat
  std::string text(Part part) const;      // kString: UTF-8; kBytes; kBigInt: two's complement, little-endian
  // Of a tuple, list or set. Of a dict: key, value, key, value, ...
  std::vector<Part> items(Part part) const;

  // Of a kObject, and of a kClass the first two.
  std::string module(Part part) const;
  std::string name(Part part) const;
  std::vector<Part> arguments(Part object) const;
  bool is_called(Part object) const;  // class(arguments); else class.__new__(class, arguments)
  bool has_items(Part object) const;  // it is a list or a dict of its own kind
  std::optional<Part> state(Part object) const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace cairn
