#include "array_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "output.h"

namespace cairn::cli {

Excerpt::Excerpt(const Shape& shape, bool full) : shape_(shape) {
  constexpr std::int64_t kMost = 1000;
  if (full || shape.numel() <= kMost) return;
  for (edge_ = 3; edge_ > 0; --edge_) {
    std::int64_t shown_in_all = 1;
    for (std::size_t d = 0; d < rank() && shown_in_all <= kMost; ++d)
      shown_in_all *= std::min(shape_[d], 2 * edge_);
    if (shown_in_all <= kMost) return;
  }
  edge_ = 1;
  hopeless_ = true;
}

std::int64_t Excerpt::shown(std::size_t dim) const { return is_cut(dim) ? 2 * edge_ : shape_[dim]; }

bool Excerpt::gap_before(std::size_t dim, std::int64_t i) const { return is_cut(dim) && i == edge_; }

std::vector<std::int64_t> Excerpt::positions() const {
  std::vector<std::int64_t> found{0};
  for (std::size_t d = 0; d < rank(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t above : found)
      for (std::int64_t i = 0; i < shown(d); ++i) {
        const std::int64_t index = is_cut(d) && i >= edge_ ? shape_[d] - 2 * edge_ + i : i;
        next.push_back(above * shape_[d] + index);
      }
    found.swap(next);
  }
  return found;
}

void NumberFormat::observe(double v) {
  negative_ |= std::signbit(v) && !std::isnan(v);
  if (!std::isfinite(v)) {
    special_ = true;
    return;
  }
  const double size = std::abs(v);
  integral_ &= std::trunc(v) == v;
  largest_ = std::max(largest_, size);
  if (size > 0) smallest_ = smallest_ == 0 ? size : std::min(smallest_, size);
}

void NumberFormat::observe(const Element& e) {
  switch (family_) {
    case Family::kReal: return observe(e.real);
    case Family::kComplex:
      observe(e.real);
      observe(e.imaginary);
      return;
    default: longest_integer_ = std::max(longest_integer_, (*this)(e).size());
  }
}

void NumberFormat::settle() {
  if (family_ != Family::kReal && family_ != Family::kComplex) {
    width_ = longest_integer_;
    return;
  }
  const bool extreme = largest_ >= 1e8 || (!integral_ && (smallest_ < 1e-4 || largest_ / smallest_ > 1e3));
  style_ = extreme ? Style::kExponent : integral_ ? Style::kIntegral : Style::kFixed;
  std::size_t width = std::max(real(largest_).size(), real(smallest_).size());
  if (special_) width = std::max<std::size_t>(width, 3);
  width_ = width + (negative_ ? 1 : 0);
}

std::string NumberFormat::real(double v) const {
  if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
  switch (style_) {
    case Style::kIntegral: return fmt::format("{:.0f}.", v);
    case Style::kFixed: return fmt::format("{:.{}f}", v, precision_);
    case Style::kExponent: return fmt::format("{:.{}e}", v, precision_);
  }
  return "";
}

std::string NumberFormat::operator()(const Element& e) const {
  switch (family_) {
    case Family::kReal: return fmt::format("{:>{}}", real(e.real), width_);
    case Family::kComplex: {
      const std::string imaginary = real(e.imaginary);
      const std::string_view sign = imaginary.starts_with('-') ? "" : "+";
      return fmt::format("{:>{}}", real(e.real) + std::string(sign) + imaginary + "j", 2 * width_ + 2);
    }
    case Family::kSigned: return fmt::format("{:>{}}", static_cast<std::int64_t>(e.bits), width_);
    case Family::kUnsigned: return fmt::format("{:>{}}", e.bits, width_);
    case Family::kBool: return fmt::format("{:>{}}", e.bits != 0 ? "True" : "False", width_);
    case Family::kPacked: return fmt::format("0x{:02x}", e.bits);
  }
  return "";
}

ArrayText::ArrayText(const Excerpt& excerpt, Look look, Output& out)
    : excerpt_(excerpt), look_(look), out_(out), at_(excerpt.rank(), 0) {}

void ArrayText::put(std::string_view text) {
  out_.text(text);
  column_ += text.size();
}

void ArrayText::open_row(std::size_t dims) {
  if (look_ == Look::kPeople && !empty_) put(std::string(excerpt_.rank() - dims, ' '));
  for (std::size_t d = 0; d < dims; ++d) put("[");
}

// What stands between the last element and the next, when `ended` dimensions have just been completed.
void ArrayText::between(std::size_t ended) {
  for (std::size_t d = 0; d < ended; ++d) put("]");
  put(",");
  const std::size_t dim = excerpt_.rank() - 1 - ended;
  const bool gap = excerpt_.gap_before(dim, at_[dim]);
  if (look_ == Look::kJson) return open_row(ended);
  const auto new_line = [&](std::size_t lines) {
    out_.repeat('\n', lines);
    column_ = 0;
  };
  if (ended == 0) {
    if (gap) put(" ...,");
    return;
  }
  new_line(ended);
  if (gap) {
    put(std::string(dim + 1, ' ') + "...,");
    new_line(ended);
  }
  open_row(ended);
}

void ArrayText::next(std::string_view element) {
  const std::size_t rank = excerpt_.rank();
  if (empty_) {
    open_row(rank);
    empty_ = false;
  } else {
    std::size_t ended = 0;
    while (ended < rank && ++at_[rank - 1 - ended] == excerpt_.shown(rank - 1 - ended)) {
      at_[rank - 1 - ended] = 0;
      ++ended;
    }
    if (ended == rank) return;  // more elements than the shape has; cannot happen
    between(ended);
    if (ended == 0 && look_ == Look::kPeople) {
      if (column_ + 1 + element.size() + rank > out_.columns()) {
        out_.put('\n');
        column_ = 0;
        put(std::string(rank, ' '));
      } else {
        put(" ");
      }
    }
  }
  put(element);
}

void ArrayText::finish() {
  if (empty_) {
    out_.text("[]");
  } else {
    out_.repeat(']', excerpt_.rank());
  }
}

}  // namespace cairn::cli
