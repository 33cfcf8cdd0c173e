// An environment and files that a test makes up.
//
//   FakeSurroundings fake;
//   fake.variables["AWS_REGION"] = "eu-west-1";
//   settings_of(fake.all());
#pragma once

#include <map>
#include <optional>
#include <string>

#include "storage/s3/settings.h"

namespace cairn::s3 {

struct FakeSurroundings {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  // Sees later changes too; this has to outlive it.
  Surroundings all() const {
    return {[this](const std::string& name) { return in(variables, name); },
            [this](const std::string& path) { return in(files, path); }};
  }

 private:
  static std::optional<std::string> in(const std::map<std::string, std::string>& map,
                                       const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  }
};

}  // namespace cairn::s3
