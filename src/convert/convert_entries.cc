#include "convert/convert_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "cairn/glob.h"
#include "convert/name_map.h"
#include "tensor/cast.h"

namespace cairn {
namespace {

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(), [&](const auto& glob) { return matches_glob(glob, name); });
}

DType dtype_for(const TensorSummary& tensor, const std::vector<CastRule>& casts) {
  const std::string name(tensor.name);
  for (const CastRule& cast : casts) {
    if (!matches_glob(cast.keys, name)) continue;
    if (is_convertible(tensor.dtype, cast.dtype)) return cast.dtype;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} cannot become {}", name_of(tensor.dtype), name_of(cast.dtype)))
        .of_tensor(name);
  }
  return tensor.dtype;
}

// A pattern that matches nothing is nearly always a mistake.
void require_matches(const std::vector<SourceEntry>& entries, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    const bool found = std::any_of(entries.begin(), entries.end(),
                                   [&](const SourceEntry& entry) { return matches_glob(glob, entry.name); });
    if (!found) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("no entry of the source is called '{}'; 'cairn ls' has the names", glob));
    }
  }
}

void require_distinct(const std::vector<ConvertEntry>& entries) {
  MapByName<std::string_view, const ConvertEntry*> names;
  for (const ConvertEntry& entry : entries) {
    const auto [known, fresh] = names.emplace(entry.name, &entry);
    if (fresh) continue;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' and '{}' would both be called '{}'",
                                                         known->second->from, entry.from, entry.name))
        .of_tensor(entry.from);
  }
}

// How many characters of `name` the step takes at its front, the dot behind it included; 0: it is not there.
std::size_t at_front(std::string_view name, const std::string& step) {
  if (!name.starts_with(step) || name.size() == step.size() || name[step.size()] != '.') return 0;
  return step.size() + 1;
}

std::size_t at_back(std::string_view name, const std::string& step) {
  if (name == step) return name.size();
  const bool there =
      name.ends_with(step) && name.size() > step.size() && name[name.size() - step.size() - 1] == '.';
  return there ? step.size() + 1 : 0;
}

}  // namespace

Path renamed_path(const Path& path, const std::string& name) {
  std::string_view rest = name;
  Path front, back;
  std::size_t first = 0, last = path.size();
  for (; first < last; ++first) {
    const std::size_t taken = at_front(rest, to_string(path[first]));
    if (taken == 0) break;
    rest.remove_prefix(taken);
    front.push_back(path[first]);
  }
  for (; last > first && !rest.empty(); --last) {
    const std::size_t taken = at_back(rest, to_string(path[last - 1]));
    if (taken == 0) break;
    rest.remove_suffix(taken);
    back.push_back(path[last - 1]);
  }
  if (!rest.empty() || back.empty()) front.emplace_back(std::string(rest));
  front.insert(front.end(), back.rbegin(), back.rend());
  return front;
}

std::vector<ConvertEntry> choose_entries(const CheckpointSource& source, const ConvertOptions& options) {
  const std::vector<SourceEntry> all = source.entries();
  require_matches(all, options.keys);
  require_matches(all, options.exclude);
  const NameMap map(options.map);
  std::vector<ConvertEntry> entries;
  for (const SourceEntry& entry : all) {
    if (!options.keys.empty() && !matches_any(options.keys, entry.name)) continue;
    if (matches_any(options.exclude, entry.name)) continue;
    ConvertEntry chosen{entry.name, map(entry.name), entry.path, entry.tensor, {}, {}, 0};
    if (chosen.name.empty())
      throw Error(ErrorCode::kInvalidArgument, "the map leaves nothing of this name").of_tensor(entry.name);
    if (chosen.name != chosen.from) chosen.path = renamed_path(entry.path, chosen.name);
    if (entry.tensor) {
      const TensorSummary& tensor = source.checkpoint().tensors()[*entry.tensor];
      chosen.dtype = dtype_for(tensor, options.casts);
      chosen.shape = tensor.shape;
      chosen.bytes = checked_mul<std::uint64_t>(static_cast<std::uint64_t>(tensor.shape.numel()),
                                                item_size(chosen.dtype));
    }
    entries.push_back(std::move(chosen));
  }
  require_distinct(entries);
  return entries;
}

}  // namespace cairn
