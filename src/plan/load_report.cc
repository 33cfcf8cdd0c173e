#include "cairn/load_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/near_names.h"
#include "cairn/error.h"
#include "plan/torch_words.h"

namespace cairn {
namespace {

constexpr std::size_t kMostNamed = 10;

// What a type can hold: integers of `digits` bits with or without a sign, floats with so many significant
// bits and exponents from `least` (of the smallest subnormal) to `greatest`.
struct Range {
  bool complex = false;
  bool real = false;  // a float
  bool is_signed = false;
  int digits = 0;
  int least = 0;
  int greatest = 0;
};

Range float_range(int digits, int least, int greatest, bool complex = false) {
  return {complex, true, true, digits, least, greatest};
}

Range integer_range(int digits, bool is_signed) { return {false, false, is_signed, digits, 0, digits}; }

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return integer_range(1, false);
    case DType::kUInt8: return integer_range(8, false);
    case DType::kInt8: return integer_range(7, true);
    case DType::kUInt16: return integer_range(16, false);
    case DType::kInt16: return integer_range(15, true);
    case DType::kUInt32: return integer_range(32, false);
    case DType::kInt32: return integer_range(31, true);
    case DType::kUInt64: return integer_range(64, false);
    case DType::kInt64: return integer_range(63, true);
    case DType::kFloat16: return float_range(11, -24, 15);
    case DType::kBFloat16: return float_range(8, -133, 127);
    case DType::kFloat32: return float_range(24, -149, 127);
    case DType::kFloat64: return float_range(53, -1074, 1023);
    case DType::kComplex32: return float_range(11, -24, 15, true);
    case DType::kComplex64: return float_range(24, -149, 127, true);
    case DType::kComplex128: return float_range(53, -1074, 1023, true);
    case DType::kFloat8E4M3FN: return float_range(4, -9, 8);
    case DType::kFloat8E4M3FNUZ: return float_range(4, -10, 7);
    case DType::kFloat8E5M2: return float_range(3, -16, 15);
    case DType::kFloat8E5M2FNUZ: return float_range(3, -17, 15);
    case DType::kFloat8E8M0FNU: return {false, true, false, 1, -127, 127};
    case DType::kFloat4E2M1FNx2: break;  // two numbers in one: equal only to itself
  }
  return {};
}

// The small floats have no infinity, or no NaN of the same kind: what a wider one holds may be lost.
bool has_infinity(DType dtype) {
  return dtype != DType::kFloat8E4M3FN && dtype != DType::kFloat8E4M3FNUZ &&
         dtype != DType::kFloat8E5M2FNUZ && dtype != DType::kFloat8E8M0FNU;
}

std::string first_words(const LoadReport& errors) {
  if (!errors.missing.empty()) {
    const LoadReport::Missing& first = errors.missing.front();
    std::string near = did_you_mean(first.near);
    if (near.starts_with(", d")) near = " D" + near.substr(3);
    return missing_key(first.fqn) + near;
  }
  if (!errors.shapes.empty()) {
    const LoadReport::ShapeMismatch& first = errors.shapes.front();
    return size_mismatch(first.fqn, first.saved, first.wanted);
  }
  if (!errors.dtypes.empty()) {
    const LoadReport::DTypeMismatch& first = errors.dtypes.front();
    return fmt::format("Type mismatch between saved {} and current: {} for {}", name_of(first.saved),
                       name_of(first.wanted), first.fqn);
  }
  if (!errors.unexpected.empty()) {
    return fmt::format("Unexpected key in checkpoint state_dict: {}.", errors.unexpected.front());
  }
  return fmt::format("{} elements of {} are wanted and not in the checkpoint",
                     errors.incomplete.front().elements, errors.incomplete.front().fqn);
}

std::size_t count_of(const LoadReport& report) {
  return report.missing.size() + report.unexpected.size() + report.shapes.size() + report.dtypes.size() +
         report.incomplete.size();
}

template <class T, class Name>
void add_line(std::string& text, std::string_view title, const std::vector<T>& entries, Name name) {
  if (entries.empty()) return;
  if (!text.empty()) text += '\n';
  text += fmt::format("{} {}: ", entries.size(), title);
  for (std::size_t i = 0; i < std::min(entries.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + name(entries[i]);
  }
  if (entries.size() > kMostNamed) text += fmt::format(" and {} more", entries.size() - kMostNamed);
}

LoadReport pick(const LoadReport& report, const LoadReportOptions& options, OnMismatch what) {
  LoadReport part;
  if (options.missing == what) part.missing = report.missing;
  if (options.unexpected == what) part.unexpected = report.unexpected;
  if (options.shape == what) part.shapes = report.shapes;
  if (options.incomplete == what) part.incomplete = report.incomplete;
  for (const LoadReport::DTypeMismatch& mismatch : report.dtypes) {
    const bool refused = options.strict_dtype && mismatch.narrowing;
    if ((refused ? OnMismatch::kError : options.dtype) == what) part.dtypes.push_back(mismatch);
  }
  return part;
}

}  // namespace

bool converts_exactly(DType from, DType to) {
  if (from == to) return true;
  const Range a = range_of(from);
  const Range b = range_of(to);
  if (a.digits == 0 || b.digits == 0) return false;
  if ((a.complex && !b.complex) || (a.real && !b.real) || (a.is_signed && !b.is_signed)) return false;
  if (b.digits < a.digits) return false;
  if (!b.real) return true;
  if (!a.real) return a.greatest <= b.greatest + 1;  // 2^digits - 1 is below 2^(greatest + 1)
  return a.least >= b.least && a.greatest <= b.greatest && (has_infinity(to) || !has_infinity(from));
}

std::string to_string(const LoadReport& report) {
  std::string text;
  add_line(text, "missing", report.missing, [](const LoadReport::Missing& entry) {
    std::string near = did_you_mean(entry.near);
    if (!near.empty()) near = fmt::format(" ({})", near.substr(2));
    return fmt::format("'{}'{}", entry.fqn, near);
  });
  add_line(text, "unexpected", report.unexpected,
           [](const std::string& fqn) { return fmt::format("'{}'", fqn); });
  add_line(text, "of another shape", report.shapes, [](const LoadReport::ShapeMismatch& entry) {
    return fmt::format("'{}' saved {} wanted {}", entry.fqn, to_string(entry.saved), to_string(entry.wanted));
  });
  add_line(text, "of another type", report.dtypes, [](const LoadReport::DTypeMismatch& entry) {
    return fmt::format("'{}' saved {} wanted {}{}", entry.fqn, name_of(entry.saved), name_of(entry.wanted),
                       entry.narrowing ? " (narrowing)" : "");
  });
  add_line(text, "incomplete", report.incomplete, [](const LoadReport::Incomplete& entry) {
    return fmt::format("'{}' lacks {} elements", entry.fqn, entry.elements);
  });
  return text;
}

LoadReport warnings_of(const LoadReport& report, const LoadReportOptions& options) {
  return pick(report, options, OnMismatch::kWarn);
}

LoadReport errors_of(const LoadReport& report, const LoadReportOptions& options) {
  return pick(report, options, OnMismatch::kError);
}

void require_loadable(const LoadReport& report, const LoadReportOptions& options) {
  const LoadReport errors = errors_of(report, options);
  const std::size_t count = count_of(errors);
  if (count == 0) return;
  std::string text = first_words(errors);
  if (count > 1) {
    std::string all = to_string(errors);
    std::replace(all.begin(), all.end(), '\n', ';');
    text += fmt::format(" In all: {}", all);
  }
  ErrorCode code = ErrorCode::kInvalidArgument;
  if (!errors.missing.empty()) {
    code = ErrorCode::kNotFound;
  } else if (errors.incomplete.size() == count) {
    code = ErrorCode::kCorrupt;
  }
  throw Error(code, std::move(text)).while_doing("planning a load");
}

}  // namespace cairn
