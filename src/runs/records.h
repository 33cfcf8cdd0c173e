// What a run remembers of a step besides the checkpoint itself: a small file in the run's folder of notes. It
// is never what makes a checkpoint one, and a step without a record is one that somebody else wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"

namespace cairn {

inline constexpr std::string_view kNotesFolder = ".cairn-run";

// A line each: "own", "abandoned", "metric 2.13 loss", "tag eval".
struct StepRecord {
  bool own = false;        // cairn wrote the step, and may remove it
  bool abandoned = false;  // somebody went back to before it
  std::map<std::string, double, std::less<>> metrics = {};
  std::set<std::string, std::less<>> tags = {};
  std::vector<std::string> others = {};  // lines of a later version: they stay
};

std::string text_of(const StepRecord& record);
// Error(kCorrupt) for what text_of() does not make, kLimit beyond 1 MiB.
StepRecord parse_record(std::string_view text);

std::optional<StepRecord> read_record(const FileSystem& notes, std::int64_t step);
// Of two who change one record at once both changes are in it, where a file can be replaced if it is
// unchanged. Error(kInvalidArgument) for names with line breaks.
void change_record(FileSystem& notes, std::int64_t step, const std::function<void(StepRecord&)>& change);
void remove_record(FileSystem& notes, std::int64_t step);

}  // namespace cairn
