// Small plans, written short, for the tests of this layer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cairn/plan.h"

namespace cairn {

inline SavePlan plan_of(std::initializer_list<WriteItem> items) {
  SavePlan plan;
  plan.items = items;
  return plan;
}

// Rows [begin, end) of a float32 tensor of `rows` x `columns`.
inline WriteItem rows_of(std::string fqn, std::int64_t begin, std::int64_t end, std::int64_t rows,
                         std::int64_t columns = 4) {
  return WriteItem::shard(std::move(fqn), DType::kFloat32, {rows, columns},
                          {{begin, 0}, {end - begin, columns}});
}

// The names of the items of each plan, "a b" per rank.
inline std::vector<std::string> names_of(const std::vector<SavePlan>& plans) {
  std::vector<std::string> all;
  for (const SavePlan& plan : plans) {
    std::string names;
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      names += (i == 0 ? "" : " ") + std::string(plan.items.fqn(i));
    }
    all.push_back(std::move(names));
  }
  return all;
}

}  // namespace cairn
