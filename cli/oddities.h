// What looks odd about a checkpoint, without reading its data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"

namespace cairn::cli {

struct Oddity {
  std::string_view kind;  // for scripts: "missing_file", "unreferenced_file", "short_file", ...
  std::string subject;    // the file or tensor; empty for the checkpoint as a whole
  std::string text;       // for people, without the subject
};

// In the order of their weight: what makes data unreadable comes first.
std::vector<Oddity> find_oddities(const Checkpoint& checkpoint, const std::vector<FileSummary>& files);

}  // namespace cairn::cli
