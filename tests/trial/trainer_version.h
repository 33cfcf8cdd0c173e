// Which version of trainer_state (testing/states.h) a state is that was loaded.
#pragma once

#include <fmt/format.h>

#include "cairn/state_dict.h"
#include "promise.h"
#include "testing/states.h"

namespace cairn {

// In any order: which rank a name comes from first is not promised.
inline void require_entries(const Dict& wanted, const Dict& found, const std::string& where, int version) {
  for (const auto& [key, value] : wanted) {
    const std::string name = where + std::get<std::string>(key);
    const Value* const other = found.find(key);
    const bool nested = value.is<Dict>() && other != nullptr && other->is<Dict>() &&
                        value.get<Dict>().size() == other->get<Dict>().size();
    if (nested) require_entries(value.get<Dict>(), other->get<Dict>(), name + ".", version);
    require(nested || (other != nullptr && *other == value),
            fmt::format("'{}' is not that of version {}", name, version));
  }
}

// All parts of a trainer's state are there, whole, and of this version; others may be there beside them.
inline void require_trainer(const StateDict& state, int version) {
  require_entries(whole_trainer_state(version), state, "", version);
}

// The version that a state says it is of, which all of it must be.
inline int trainer_version(const StateDict& state) {
  const Value* const step = state.find("step");
  require(step != nullptr && step->is<std::int64_t>(), "there is no step");
  const auto version = static_cast<int>(step->get<std::int64_t>());
  require_trainer(state, version);
  return version;
}

}  // namespace cairn
