// The storages that a pickle of torch.save refers to, without reading it as a program.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// The keys of its storages (record data/{key}), in order of first use. Error kUnsupported when one is not
// described as torch does it: ('storage', class, key, location, size).
std::vector<std::string> storage_keys(std::string_view pickle);

// The same program with other keys: every storage gets rename(key), all else stays as it is. Needed where
// objects of several archives come together in one.
std::string rename_storages(std::string_view pickle,
                            const std::function<std::string(const std::string& key)>& rename);

}  // namespace cairn
