// "Did you mean": the names closest to one that does not exist.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// Up to `most` of the `count` names that look like `wanted`, best first: the same but for upper and lower
// case, the same after a dotted prefix is taken off either ("w" and "model.w"), or few typing mistakes
// away. Empty when nothing is close. Looks at no more than the first 200,000 names.
std::vector<std::string> near_names(std::string_view wanted, std::size_t count,
                                    const std::function<std::string_view(std::size_t)>& name_at,
                                    std::size_t most = 3);

// ", did you mean 'a' or 'b'?"; empty for no names.
std::string did_you_mean(const std::vector<std::string>& names);

}  // namespace cairn
