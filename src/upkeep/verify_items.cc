// Stored items by the file they are in.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "upkeep/verify_steps.h"

namespace cairn {

ItemsByFile::ItemsByFile(const StorageData& storage) : storage_(storage) {
  const std::size_t files = storage.files().size();
  rows_.resize(storage.size(), 0);
  std::iota(rows_.begin(), rows_.end(), std::uint32_t{0});
  std::sort(rows_.begin(), rows_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](std::uint32_t row) { return std::pair(storage.file_id(row), storage.offset(row)); };
    return key(a) < key(b);
  });
  starts_.resize(files + 1, 0);
  for (const std::uint32_t row : rows_) ++starts_[storage.file_id(row) + 1];
  for (std::size_t f = 0; f < files; ++f) starts_[f + 1] += starts_[f];
  for (std::size_t f = 0; f < files; ++f)
    file_ids_.emplace(storage.files()[f], static_cast<std::uint32_t>(f));
}

std::span<const std::uint32_t> ItemsByFile::of(std::string_view file) const {
  const auto found = file_ids_.find(file);
  if (found == file_ids_.end()) return {};
  const std::uint32_t id = found->second;
  return std::span(rows_.data(), rows_.size()).subspan(starts_[id], starts_[id + 1] - starts_[id]);
}

std::span<const std::uint32_t> ItemsByFile::touching(std::string_view file, std::uint64_t begin,
                                                     std::uint64_t end) const {
  const std::span<const std::uint32_t> rows = of(file);
  const auto starts_before = [&](std::uint64_t place) {
    const auto at = std::partition_point(rows.begin(), rows.end(), [&](std::uint32_t row) {
      return storage_.offset(row) < 0 || static_cast<std::uint64_t>(storage_.offset(row)) < place;
    });
    return static_cast<std::size_t>(at - rows.begin());
  };
  std::size_t first = starts_before(begin);
  const auto end_of = [&](std::uint32_t row) { return storage_.offset(row) + storage_.length(row); };
  if (first > 0 && end_of(rows[first - 1]) > static_cast<std::int64_t>(begin)) --first;
  return rows.subspan(first, starts_before(end) - first);
}

const ManifestItem* find_item(const ManifestFile& file, std::uint64_t offset, std::uint64_t length) {
  // Items do not overlap: of those at one place all but the last are empty.
  const std::pair wanted(offset, length);
  const auto at = std::partition_point(file.items.begin(), file.items.end(), [&](const ManifestItem& item) {
    return std::pair(item.offset, item.length) < wanted;
  });
  return at != file.items.end() && std::pair(at->offset, at->length) == wanted ? &*at : nullptr;
}

std::string names_of(const StorageData& storage, std::span<const std::uint32_t> rows) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string_view> names;
  for (const std::uint32_t row : rows) names.push_back(storage.fqn(row));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text.empty() ? "nothing" : text;
}

}  // namespace cairn
