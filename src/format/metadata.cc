#include "cairn/metadata.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/pod_vector.h"
#include "base/seeded_hash.h"

namespace cairn {

std::string to_string(const SaveId& id) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : id) {
    text += kDigits[std::to_integer<std::size_t>(b >> 4)];
    text += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return text;
}

namespace {

// Steps of a path in PathMap::text_: a length and text; or kNumber, and a number.
constexpr std::uint32_t kNumber = ~std::uint32_t{0};

void put_text(PodVector<char>& text, std::string_view piece) {
  char* at = text.extend(sizeof(std::uint32_t) + piece.size());
  store(at, static_cast<std::uint32_t>(piece.size()));
  std::copy(piece.begin(), piece.end(), at + sizeof(std::uint32_t));
}

std::string_view take_text(const PodVector<char>& text, std::uint64_t& at) {
  const auto length = load<std::uint32_t>(text.data() + at);
  at += sizeof(length) + length;
  return {text.data() + at - length, length};
}

}  // namespace

std::string_view name_of(Layout layout) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "torch.strided",    "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc",
      "torch.sparse_bsr", "torch.sparse_bsc", "torch._mkldnn",    "torch.jagged"};
  return kNames[static_cast<std::size_t>(layout)];
}

std::size_t hash_of(const MetadataIndex& index) {
  const std::size_t name = seeded_hash(index.fqn);
  return index.offset ? mix_hash(name, hash_of(*index.offset)) : name;
}

struct PathMap::Data {
  PodVector<char> text;  // per entry: the fqn, then its steps
  PodVector<std::uint64_t> ends;
};

PathMap::PathMap() : data_(std::make_shared<Data>()) {}
PathMap::PathMap(const PathMap& other) = default;
PathMap::PathMap(PathMap&&) noexcept = default;
PathMap& PathMap::operator=(const PathMap& other) = default;
PathMap& PathMap::operator=(PathMap&&) noexcept = default;
PathMap::~PathMap() = default;

PathMap::Data& PathMap::own() {
  if (data_.use_count() > 1) data_ = std::make_shared<Data>(*data_);
  return *data_;
}

std::size_t PathMap::size() const { return data_->ends.size(); }

void PathMap::begin_entry(std::string_view fqn) {
  Data& data = own();
  put_text(data.text, fqn);
  data.ends.push_back(data.text.size());
}

void PathMap::add_step(std::string_view name) {
  Data& data = own();
  put_text(data.text, name);
  data.ends.back() = data.text.size();
}

void PathMap::add_step(std::int64_t number) {
  Data& data = own();
  char* at = data.text.extend(sizeof(kNumber) + sizeof(number));
  store(at, kNumber);
  store(at + sizeof(kNumber), number);
  data.ends.back() = data.text.size();
}

void PathMap::add(std::string_view fqn, const Path& path) {
  begin_entry(fqn);
  for (const Key& step : path) {
    if (const auto* name = std::get_if<std::string>(&step)) {
      add_step(*name);
    } else {
      add_step(std::get<std::int64_t>(step));
    }
  }
}

std::string_view PathMap::fqn(std::size_t i) const {
  std::uint64_t at = i == 0 ? 0 : data_->ends[i - 1];
  return take_text(data_->text, at);
}

std::optional<PathMap::Step> PathMap::step(std::size_t i, std::uint64_t& cursor) const {
  std::uint64_t at = i == 0 ? 0 : data_->ends[i - 1];
  if (cursor == 0) {
    take_text(data_->text, at);
  } else {
    at += cursor;
  }
  if (at >= data_->ends[i]) return std::nullopt;
  const std::uint64_t begin = i == 0 ? 0 : data_->ends[i - 1];
  const char* step = data_->text.data() + at;
  Step found;
  if (load<std::uint32_t>(step) == kNumber) {
    found.is_number = true;
    found.number = load<std::int64_t>(step + sizeof(kNumber));
    at += sizeof(kNumber) + sizeof(std::int64_t);
  } else {
    found.name = take_text(data_->text, at);
  }
  cursor = at - begin;
  return found;
}

Path PathMap::path(std::size_t i) const {
  Path path;
  std::uint64_t cursor = 0;
  while (const auto step = this->step(i, cursor)) {
    if (step->is_number) {
      path.emplace_back(step->number);
    } else {
      path.emplace_back(std::string(step->name));
    }
  }
  return path;
}

bool PathMap::operator==(const PathMap& other) const {
  return data_ == other.data_ || (std::ranges::equal(data_->text, other.data_->text) &&
                                  std::ranges::equal(data_->ends, other.data_->ends));
}

std::optional<Path> PathMap::find(std::string_view name) const {
  for (std::size_t i = 0; i < size(); ++i)
    if (fqn(i) == name) return path(i);
  return std::nullopt;
}

const StorageMetadata* Metadata::find(std::string_view fqn) const {
  for (const auto& [name, stored] : state_dict_metadata)
    if (name == fqn) return &stored;
  return nullptr;
}

}  // namespace cairn
