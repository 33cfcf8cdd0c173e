#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "state/nesting.h"

namespace cairn {
namespace {

// Compares two strided runs of one shape from dimension `dim` on. Rank is small, so recursion is too.
bool same_elements(const std::byte* a, const std::byte* b, const TensorView& va, const TensorView& vb,
                   std::size_t dim, std::size_t item) {
  if (dim == va.shape.rank()) return std::memcmp(a, b, item) == 0;
  const auto step = static_cast<std::int64_t>(item);
  for (std::int64_t i = 0; i < va.shape[dim]; ++i) {
    const std::byte* at_a = a + i * va.strides[dim] * step;
    const std::byte* at_b = b + i * vb.strides[dim] * step;
    if (!same_elements(at_a, at_b, va, vb, dim + 1, item)) return false;
  }
  return true;
}

bool same_tensor(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.device != b.device) return false;
  if (a.numel() == 0 || (a.data == b.data && a.strides == b.strides)) return true;
  if (a.data == nullptr || b.data == nullptr) return false;
  if (!a.device.is_cpu()) {
    throw Error(ErrorCode::kUnsupported, "cannot compare tensors that are not in CPU memory");
  }
  if (a.is_contiguous() && b.is_contiguous()) return std::memcmp(a.data, b.data, a.bytes()) == 0;
  return same_elements(a.data, b.data, a, b, 0, item_size(a.dtype));
}

bool same_sharded(const ShardedTensor& a, const ShardedTensor& b) {
  if (a.dtype != b.dtype || a.global_shape != b.global_shape || a.shards.size() != b.shards.size())
    return false;
  for (std::size_t i = 0; i < a.shards.size(); ++i) {
    if (a.shards[i].box != b.shards[i].box) return false;
    if (!same_tensor(a.shards[i].data.view(), b.shards[i].data.view())) return false;
  }
  return true;
}

// A NaN equals a NaN, so that a state equals its own copy.
bool same_real(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

// Here, and not in the header: compiling these in every source took a tenth of all compiling.
Value::Value() = default;
Value::Value(None) {}
Value::Value(bool v) : v_(v) {}
Value::Value(int v) : v_(std::int64_t{v}) {}
Value::Value(std::int64_t v) : v_(v) {}
Value::Value(double v) : v_(v) {}
Value::Value(const char* v) : v_(std::string(v)) {}
Value::Value(std::string v) : v_(std::move(v)) {}
Value::Value(BigInt v) : v_(std::move(v)) {}
Value::Value(Bytes v) : v_(std::move(v)) {}
Value::Value(List v) : v_(std::move(v)) {}
Value::Value(Tuple v) : v_(std::move(v)) {}
Value::Value(Dict v) : v_(std::move(v)) {}
Value::Value(Tensor v) : v_(Boxed(std::move(v))) {}
Value::Value(ShardedTensor v) : v_(Boxed(std::move(v))) {}
Value::Value(StoredTensor v) : v_(Boxed(std::move(v))) {}
Value::Value(Opaque v) : v_(Boxed(std::move(v))) {}
Value::Value(const Value& other) : v_(other.holds_values() ? Kinds() : other.v_) {
  if (other.holds_values()) copy_from(other);
}
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value& other) { return *this = Value(other); }
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() {
  if (holds_values()) let_go();
}

void Value::copy_from(const Value& other) {
  thread_local int depth = 0;
  struct Level {
    Level() { ++depth; }
    ~Level() { --depth; }
  } const level;
  check_nesting(depth);
  v_ = other.v_;
}

// Levels beyond a few are put aside, and taken apart one after the other by the outermost.
void Value::let_go() noexcept {
  constexpr int kLevels = 200;
  thread_local int depth = 0;
  thread_local std::vector<Value>* aside = nullptr;  // there only while it is needed
  if (depth >= kLevels) {
    try {
      if (aside == nullptr) aside = new std::vector<Value>;
      return aside->push_back(std::move(*this));
    } catch (...) {
      // There is no memory to put it aside.
    }
  }
  ++depth;
  v_ = None{};
  while (depth == 1 && aside != nullptr && !aside->empty()) {
    const Value next = std::move(aside->back());
    aside->pop_back();
  }
  if (depth == 1) delete std::exchange(aside, nullptr);
  --depth;
}

bool equal(const List& a, const List& b, int depth) {
  check_nesting(depth);
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], depth + 1)) return false;
  }
  return true;
}

bool equal(const Dict& a, const Dict& b, int depth) {
  check_nesting(depth);
  if (a.size() != b.size()) return false;
  for (auto at_a = a.begin(), at_b = b.begin(); at_a != a.end(); ++at_a, ++at_b) {
    if (at_a->first != at_b->first || !equal(at_a->second, at_b->second, depth + 1)) return false;
  }
  return true;
}

bool equal(const Value& a, const Value& b, int depth) {
  if (a.kind() != b.kind()) return false;
  return a.visit([&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    const T& y = b.get<T>();
    if constexpr (std::is_same_v<T, double>) {
      return same_real(x, y);
    } else if constexpr (std::is_same_v<T, List> || std::is_same_v<T, Dict>) {
      return equal(x, y, depth);
    } else if constexpr (std::is_same_v<T, Tuple>) {
      return equal(x.items, y.items, depth);
    } else if constexpr (std::is_same_v<T, Tensor>) {
      return same_tensor(x.view(), y.view());
    } else if constexpr (std::is_same_v<T, ShardedTensor>) {
      return same_sharded(x, y);
    } else {
      return x == y;
    }
  });
}

bool Tuple::operator==(const Tuple& other) const { return equal(items, other.items, 0); }

bool Value::operator==(const Value& other) const { return equal(*this, other, 0); }

}  // namespace cairn
