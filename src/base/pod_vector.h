// A growing array of plain numbers or structs, for millions of them.
//
// Unlike std::vector it grows in place where it can (large_block.h): large arrays are remapped by the
// kernel instead of copied, so the peak is the array itself and not one and a half of it, and untouched
// capacity costs nothing.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "base/large_block.h"

namespace cairn {

template <class T> class PodVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PodVector() = default;
  PodVector(const PodVector& other) { append(other.span()); }
  PodVector(PodVector&& other) noexcept { swap(other); }
  PodVector& operator=(PodVector other) noexcept {
    swap(other);
    return *this;
  }
  ~PodVector() {
    if (data_ != nullptr) free_block(data_, capacity_ * sizeof(T));
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<const T> span() const { return {data_, size_}; }

  void push_back(T value) {
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = value;
  }
  void pop_back() { --size_; }
  void truncate(std::size_t size) { size_ = size; }  // size <= size()
  void clear() { size_ = 0; }
  void reserve(std::size_t n) {
    if (n > capacity_) reallocate(n);
  }
  void resize(std::size_t n, T fill = T{}) {
    if (n > capacity_) grow(n);
    for (std::size_t i = size_; i < n; ++i) data_[i] = fill;
    size_ = n;
  }
  // n new elements at the end, not initialised.
  T* extend(std::size_t n) {
    if (size_ + n > capacity_) grow(size_ + n);
    T* first = data_ + size_;
    size_ += n;
    return first;
  }
  void append(std::span<const T> values) {  // also takes a string_view for T = char
    if (!values.empty()) std::memcpy(extend(values.size()), values.data(), values.size_bytes());
  }

 private:
  void grow(std::size_t least) { reallocate(least > 2 * capacity_ ? least : 2 * capacity_); }
  void reallocate(std::size_t n) {
    if (n < 16) n = 16;
    if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
    data_ = static_cast<T*>(resize_block(data_, capacity_ * sizeof(T), n * sizeof(T)));
    capacity_ = n;
  }
  void swap(PodVector& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace cairn
