// What a state and a checkpoint disagree about, found before anything is written.
//
//   LoadPlannerOptions options;
//   options.report.unexpected = OnMismatch::kWarn;
//
// Plain values, free to be used by different threads as long as each uses its own object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/tensor.h"

namespace cairn {

enum class OnMismatch : std::uint8_t { kIgnore, kWarn, kError };

// The defaults are DCP's.
struct LoadReportOptions {
  OnMismatch missing = OnMismatch::kError;      // wanted, not in the checkpoint
  OnMismatch unexpected = OnMismatch::kIgnore;  // in the checkpoint, not wanted
  OnMismatch shape = OnMismatch::kError;        // another global size
  OnMismatch dtype = OnMismatch::kIgnore;       // another element type: values are converted
  bool strict_dtype = false;                    // a conversion that can change values is an error
  // A wanted box of which the checkpoint holds only a part. DCP reads that part and leaves the rest as it
  // was; here it is an error unless somebody says otherwise.
  OnMismatch incomplete = OnMismatch::kError;
};

struct LoadReport {
  struct Missing {
    std::string fqn;
    std::vector<std::string> near;  // names of the checkpoint that look like it; for the first few only
    bool operator==(const Missing&) const = default;
  };
  struct ShapeMismatch {
    std::string fqn;
    Shape saved;
    Shape wanted;
    bool operator==(const ShapeMismatch&) const = default;
  };
  struct DTypeMismatch {
    std::string fqn;
    DType saved;
    DType wanted;
    bool narrowing = false;  // some value of the saved type has no equal in the wanted one
    bool operator==(const DTypeMismatch&) const = default;
  };
  struct Incomplete {
    std::string fqn;
    std::int64_t elements = 0;  // wanted here and stored nowhere
    bool operator==(const Incomplete&) const = default;
  };

  std::vector<Missing> missing;
  std::vector<std::string> unexpected;
  std::vector<ShapeMismatch> shapes;
  std::vector<DTypeMismatch> dtypes;
  std::vector<Incomplete> incomplete;

  bool clean() const {
    return missing.empty() && unexpected.empty() && shapes.empty() && dtypes.empty() && incomplete.empty();
  }
  bool operator==(const LoadReport&) const = default;
};

// One line per class that has entries: "2 missing: 'model.w' (did you mean 'model.v'?), 'model.b'". Each
// names the first ten. Empty when the report is clean.
std::string to_string(const LoadReport& report);

// The part of the report that the options make a warning, or an error.
LoadReport warnings_of(const LoadReport& report, const LoadReportOptions& options);
LoadReport errors_of(const LoadReport& report, const LoadReportOptions& options);

// Throws when there are errors: kNotFound when keys are missing, kCorrupt when boxes are incomplete and
// nothing else is wrong, else kInvalidArgument. The message starts with DCP's words for the first of them.
void require_loadable(const LoadReport& report, const LoadReportOptions& options);

// Whether every value of one type has an equal in the other.
bool converts_exactly(DType from, DType to);

}  // namespace cairn
