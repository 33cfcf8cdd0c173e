// What the folders and files of a run are called, by cairn and by those who write checkpoints themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn {

struct StepName {
  std::int64_t step = 0;
  std::string_view framework;  // which names them like that
  bool is_file = false;        // a checkpoint in one file
  bool operator==(const StepName&) const = default;
};

// nullopt for a name that nobody gives to a step.
std::optional<StepName> parse_step_name(std::string_view name);

// "step-1200": what cairn calls its own.
std::string step_name(std::int64_t step);

}  // namespace cairn
