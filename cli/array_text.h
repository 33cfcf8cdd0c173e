// Arrays of numbers as text: which elements are shown, how each is written, and where lines break.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/tensor.h"
#include "elements.h"

namespace cairn::cli {

class Output;

// The part of an array that is printed: all of it, or the first and last few along each long dimension.
class Excerpt {
 public:
  Excerpt(const Shape& shape, bool full);

  bool is_whole() const { return edge_ == 0; }
  bool is_hopeless() const { return hopeless_; }  // so many dimensions that even the corners are too many
  std::size_t rank() const { return shape_.rank(); }
  std::int64_t shown(std::size_t dim) const;               // how many along this dimension
  bool gap_before(std::size_t dim, std::int64_t i) const;  // "..." stands before the i-th shown one
  std::vector<std::int64_t> positions() const;  // row-major positions of the shown elements, ascending

 private:
  bool is_cut(std::size_t dim) const { return edge_ > 0 && shape_[dim] > 2 * edge_; }

  Shape shape_;
  std::int64_t edge_ = 0;  // 0: all is shown
  bool hopeless_ = false;
};

// How the elements of one array are written. First every element is observed, then each is formatted:
// plain numbers in fixed point, very large, small or spread ones with an exponent, as torch does.
class NumberFormat {
 public:
  NumberFormat(Family family, int precision) : family_(family), precision_(precision) {}

  void observe(const Element& element);
  void settle();  // after the last observe()

  std::string operator()(const Element& element) const;  // padded to the common width

 private:
  void observe(double v);
  std::string real(double v) const;

  enum class Style { kIntegral, kFixed, kExponent };
  Family family_;
  int precision_;
  Style style_ = Style::kFixed;
  std::size_t width_ = 0;
  double largest_ = 0;   // by magnitude, finite
  double smallest_ = 0;  // not zero; 0: none seen
  bool integral_ = true;
  bool negative_ = false;
  bool special_ = false;  // NaN or infinity
  std::size_t longest_integer_ = 0;
};

// Puts brackets, commas, line breaks and "..." between elements that come in row-major order.
class ArrayText {
 public:
  enum class Look { kPeople, kJson };
  ArrayText(const Excerpt& excerpt, Look look, Output& out);

  void next(std::string_view element);
  void finish();  // after the last element

 private:
  void open_row(std::size_t dims);
  void between(std::size_t ended);
  void put(std::string_view text);

  const Excerpt& excerpt_;
  Look look_;
  Output& out_;
  std::vector<std::int64_t> at_;  // among the shown ones
  std::size_t column_ = 0;
  bool empty_ = true;
};

}  // namespace cairn::cli
