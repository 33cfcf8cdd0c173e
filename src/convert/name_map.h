// New names for entries, by regular expressions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cairn/convert.h"

namespace cairn {

class NameMap {
 public:
  // Error kInvalidArgument for a pattern that is no regular expression, or refers to its own groups.
  explicit NameMap(const std::vector<KeyRule>& rules);
  ~NameMap();

  // The name after all rules. Error kLimit for a name of more than 4 KiB, when there is a rule.
  std::string operator()(std::string name) const;

 private:
  struct Rules;
  std::unique_ptr<Rules> rules_;
};

}  // namespace cairn
