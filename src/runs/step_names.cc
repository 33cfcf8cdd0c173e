#include "runs/step_names.h"

#include <fmt/format.h>

#include <charconv>

namespace cairn {
namespace {

struct Row {
  std::string_view framework;
  std::string_view before;  // the number
};

// In this order where one step has several names.
constexpr Row kRows[] = {
    {"torchtitan", "step-"},                                    // and cairn
    {"megatron", "iter_"},                                      // iter_0001200
    {"accelerate", "checkpoint_"}, {"trainer", "checkpoint-"},  // of Hugging Face
    {"deepspeed", "global_step"},  {"plain", ""},
};
constexpr std::string_view kEpoch = "epoch=", kStep = "-step=", kCkpt = ".ckpt";

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// "epoch=3-step=1200.ckpt", or "...-v1.ckpt" where there was one already.
std::optional<StepName> of_lightning(std::string_view name) {
  if (!name.starts_with(kEpoch) || !name.ends_with(kCkpt)) return std::nullopt;
  name.remove_suffix(kCkpt.size());
  name.remove_prefix(kEpoch.size());
  const std::size_t middle = name.find(kStep);
  if (middle == name.npos || !whole_number(name.substr(0, middle))) return std::nullopt;
  std::string_view number = name.substr(middle + kStep.size());
  if (const std::size_t version = number.find("-v"); version != number.npos) {
    if (!whole_number(number.substr(version + 2))) return std::nullopt;
    number = number.substr(0, version);
  }
  const auto step = whole_number(number);
  if (!step) return std::nullopt;
  return StepName{*step, "lightning", true};
}

}  // namespace

std::optional<StepName> parse_step_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (!name.starts_with(row.before)) continue;
    if (const auto step = whole_number(name.substr(row.before.size()))) return StepName{*step, row.framework};
  }
  return of_lightning(name);
}

std::string step_name(std::int64_t step) { return fmt::format("step-{}", step); }

}  // namespace cairn
