// New names for entries, by regular expressions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cairn/convert.h"

namespace cairn {

class NameMap {
 public:
  // Error kInvalidArgument for a pattern that is no regular expression.
  explicit NameMap(const std::vector<KeyRule>& rules);
  ~NameMap();

  // The name after all rules. Error kLimit for a pattern that takes too long on it.
  std::string operator()(std::string name) const;

 private:
  struct Rules;
  std::unique_ptr<Rules> rules_;
};

}  // namespace cairn
