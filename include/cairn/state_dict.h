// The state of a training job as plain, ordered, nested data.
//
// A Value is what Python's plain objects, tensors and everything a checkpoint holds become here; a
// StateDict is a Dict at the top. Values are copied by value; tensors inside share their memory.
//
//   StateDict state;
//   state.set("step", Value(7));
//   state.set("model", Dict{{"w", Value(tensor)}});
//   Flattened flat = flatten(state);          // "step", "model.w"
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/tensor.h"

namespace cairn {

class Value;

struct None {
  bool operator==(const None&) const = default;
};

// An integer outside 64 bits: two's complement, little-endian, as pickle writes it.
struct BigInt {
  std::string twos_complement;
  bool operator==(const BigInt&) const = default;
};

struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

using List = std::vector<Value>;

struct Tuple {
  List items;
  bool operator==(const Tuple& other) const;
};

// A key of a Dict, and a step of a Path: a name or a number.
using Key = std::variant<std::string, std::int64_t>;
using Path = std::vector<Key>;
std::string to_string(const Key& key);
std::string join(const Path& path);  // the flat name: steps joined by "."

// A dictionary that keeps insertion order. Lookup by key is linear up to a handful of entries and
// hashed beyond.
class Dict {
 public:
  Dict();
  Dict(std::initializer_list<std::pair<Key, Value>> entries);
  Dict(const Dict&);
  Dict(Dict&&) noexcept;
  Dict& operator=(const Dict&);
  Dict& operator=(Dict&&) noexcept;
  ~Dict();

  void set(Key key, Value value);  // replaces an equal key in place, else appends
  void reserve(std::size_t entries);
  Value* find(const Key& key);  // nullptr when absent
  const Value* find(const Key& key) const;
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  const std::pair<Key, Value>* begin() const;
  const std::pair<Key, Value>* end() const;
  std::pair<Key, Value>* begin();
  std::pair<Key, Value>* end();
  bool operator==(const Dict& other) const;  // same entries in the same order

 private:
  struct Entries;
  std::unique_ptr<Entries> entries_;
};

using StateDict = Dict;

// One piece of a tensor that lies on this rank.
struct LocalShard {
  Box box;      // which part of the global tensor
  Tensor data;  // its elements; shape == box.sizes
};

// A tensor cut over ranks: the global shape, and the pieces that are here.
struct ShardedTensor {
  DType dtype = DType::kFloat32;
  Shape global_shape;
  std::vector<LocalShard> shards;
};

// A tensor that still lies in a file: described, not read. `id` means something to the reader that
// made it (TorchFile::read). Strides count elements.
struct StoredTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  Shape strides;
  std::uint64_t id = 0;
  bool requires_grad = false;
  bool parameter = false;  // torch.nn.Parameter, not a bare tensor
  bool operator==(const StoredTensor&) const = default;
};

// A Python object we do not understand and never run: a complete pickle (protocol 2, ending in STOP).
struct Opaque {
  std::string class_name;  // "torch.optim.sgd.SGD", for people
  std::string pickle;
  bool operator==(const Opaque&) const = default;
};

// The large alternatives of a Value live behind a pointer, so that a Value is 40 bytes and a list of a
// million small numbers is no surprise. Copies are deep; users of Value never see it.
template <class T> class Boxed {
 public:
  explicit Boxed(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Boxed(const Boxed& other) : value_(std::make_unique<T>(*other)) {}
  Boxed(Boxed&&) noexcept = default;
  Boxed& operator=(Boxed other) noexcept {
    value_.swap(other.value_);
    return *this;
  }
  ~Boxed() = default;
  const T& operator*() const { return *value_; }
  T& operator*() { return *value_; }

 private:
  std::unique_ptr<T> value_;  // null only after a move
};

class Value {
  template <class T>
  static constexpr bool kBoxed = std::is_same_v<T, Tensor> || std::is_same_v<T, ShardedTensor> ||
                                 std::is_same_v<T, StoredTensor> || std::is_same_v<T, Opaque>;

 public:
  Value();
  Value(None v);
  Value(bool v);
  Value(int v);
  Value(std::int64_t v);
  Value(double v);
  Value(const char* v);
  Value(std::string v);
  Value(BigInt v);
  Value(Bytes v);
  Value(List v);
  Value(Tuple v);
  Value(Dict v);
  Value(Tensor v);
  Value(ShardedTensor v);
  Value(StoredTensor v);
  Value(Opaque v);
  // Error(kLimit) for one that is nested deeper than values may be (a thousand levels).
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  template <class T> bool is() const { return get_if<T>() != nullptr; }
  // The value as a T; null when it is something else.
  template <class T> const T* get_if() const {
    if constexpr (kBoxed<T>) {
      const auto* boxed = std::get_if<Boxed<T>>(&v_);
      return boxed == nullptr ? nullptr : &**boxed;
    } else {
      return std::get_if<T>(&v_);
    }
  }
  template <class T> T* get_if() { return const_cast<T*>(std::as_const(*this).get_if<T>()); }
  // The same, for who knows what it is; std::bad_variant_access otherwise.
  template <class T> const T& get() const {
    if (const T* value = get_if<T>()) return *value;
    throw std::bad_variant_access();
  }
  template <class T> T& get() { return const_cast<T&>(std::as_const(*this).get<T>()); }
  // Calls f with the value as what it is.
  template <class F> decltype(auto) visit(F&& f) const {
    return std::visit(
        [&]<class T>(const T& v) -> decltype(auto) {
          if constexpr (requires { *v; }) {
            return f(*v);
          } else {
            return f(v);
          }
        },
        v_);
  }
  std::size_t kind() const { return v_.index(); }  // equal for values of the same type

  bool is_tensor() const { return is<Tensor>() || is<ShardedTensor>() || is<StoredTensor>(); }

  // Plain data by value, tensors by element type, shape and bytes.
  bool operator==(const Value& other) const;

 private:
  using Kinds = std::variant<None, bool, std::int64_t, BigInt, double, std::string, Bytes, List, Tuple, Dict,
                             Boxed<Tensor>, Boxed<ShardedTensor>, Boxed<StoredTensor>, Boxed<Opaque>>;
  bool holds_values() const { return is<List>() || is<Tuple>() || is<Dict>(); }
  void copy_from(const Value& other);
  void let_go() noexcept;  // whatever the depth

  Kinds v_;
};

// A value as Python would print it; tensors as "tensor(float32, [2, 3])". At most `max_chars`, then "...".
std::string to_string(const Value& value, std::size_t max_chars = 4096);

// Which of torch's rules decide where a nested state is cut into entries.
enum class FlattenRule {
  kCurrent,  // torch >= 2.4: every mapping is descended; a list only if a tensor or mapping is inside
  kTorch23,  // torch <= 2.3: a mapping or list with no tensor anywhere below is one entry
};

struct FlatEntry {
  std::string name;  // join(path)
  Path path;
  Value value;
};
using Flattened = std::vector<FlatEntry>;

// Cuts a nested state into named entries, in insertion order. Mapping keys become strings in the path,
// list positions stay numbers. Two entries of one name: Error(kInvalidArgument), "duplicated flatten key".
//
// One deliberate difference from torch: an empty dict inside the state becomes an entry of its own (an
// empty Dict as the value), so that it survives; torch drops it. PyTorch reads such an entry as an
// object it unpickles to {}.
Flattened flatten(const StateDict& state, FlattenRule rule = FlattenRule::kCurrent);

// Puts entries back where their paths say: a dict where the next step is a name, a list (padded with
// None) where it is a number.
StateDict unflatten(const Flattened& entries);

// Single steps of unflatten, for those who place values one at a time.
void set_element(StateDict& root, const Path& path, Value value);
const Value* get_element(const StateDict& root, const Path& path);  // nullptr when absent

}  // namespace cairn
