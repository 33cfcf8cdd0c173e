#include <bit>
#include <limits>
#include <utility>

#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "state/nesting.h"

namespace cairn {
namespace {

// Below this many entries a scan is faster than a hash, and most dicts of a checkpoint are that small.
constexpr std::size_t kScanned = 16;
constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

std::size_t hash_of_key(const Key& key) {
  if (const auto* name = std::get_if<std::string>(&key)) return seeded_hash(*name);
  return mix_hash(kHashSeed.start, static_cast<std::uint64_t>(std::get<std::int64_t>(key)));
}

}  // namespace

// `slots` is an open-addressed table of positions in `items`, at most half full; empty while the dict is
// small enough to scan.
struct Dict::Entries {
  std::vector<std::pair<Key, Value>> items;
  std::vector<std::uint32_t> slots;

  std::size_t position(const Key& key) const {  // items.size() when absent
    if (slots.empty()) {
      std::size_t i = 0;
      while (i < items.size() && items[i].first != key) ++i;
      return i;
    }
    const std::uint32_t found = slots[slot_of(key)];
    return found == kFree ? items.size() : found;
  }

  void append(Key key, Value value) {
    if (items.size() >= kFree) throw Error(ErrorCode::kLimit, "a dict has more than 2^32 - 2 entries");
    items.emplace_back(std::move(key), std::move(value));
    if (items.size() <= kScanned) return;
    if (items.size() * 2 > slots.size()) {
      rebuild();
    } else {
      slots[slot_of(items.back().first)] = static_cast<std::uint32_t>(items.size() - 1);
    }
  }

 private:
  // The slot that holds the key, or the free one where it belongs.
  std::size_t slot_of(const Key& key) const {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = hash_of_key(key) & mask;
    while (slots[at] != kFree && items[slots[at]].first != key) at = (at + 1) & mask;
    return at;
  }

  void rebuild() {
    slots.assign(std::bit_ceil(items.size() * 4), kFree);
    for (std::size_t i = 0; i < items.size(); ++i)
      slots[slot_of(items[i].first)] = static_cast<std::uint32_t>(i);
  }
};

// An empty dict has no Entries: there are many of them, and a moved-from dict is one.
Dict::Dict() = default;
Dict::Dict(std::initializer_list<std::pair<Key, Value>> entries) {
  for (const auto& [key, value] : entries) set(key, value);
}
Dict::Dict(const Dict& other)
    : entries_(other.entries_ ? std::make_unique<Entries>(*other.entries_) : nullptr) {}
Dict::Dict(Dict&&) noexcept = default;
Dict& Dict::operator=(const Dict& other) {
  if (this != &other) *this = Dict(other);
  return *this;
}
Dict& Dict::operator=(Dict&&) noexcept = default;
Dict::~Dict() = default;

void Dict::set(Key key, Value value) {
  if (!entries_) entries_ = std::make_unique<Entries>();
  const std::size_t at = entries_->position(key);
  if (at < entries_->items.size()) {
    entries_->items[at].second = std::move(value);
  } else {
    entries_->append(std::move(key), std::move(value));
  }
}

void Dict::reserve(std::size_t entries) {
  if (entries == 0) return;
  if (!entries_) entries_ = std::make_unique<Entries>();
  entries_->items.reserve(entries);
}

const Value* Dict::find(const Key& key) const {
  if (!entries_) return nullptr;
  const std::size_t at = entries_->position(key);
  return at < entries_->items.size() ? &entries_->items[at].second : nullptr;
}

Value* Dict::find(const Key& key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

std::size_t Dict::size() const { return entries_ ? entries_->items.size() : 0; }

const std::pair<Key, Value>* Dict::begin() const { return entries_ ? entries_->items.data() : nullptr; }
const std::pair<Key, Value>* Dict::end() const { return begin() + size(); }
std::pair<Key, Value>* Dict::begin() { return entries_ ? entries_->items.data() : nullptr; }
std::pair<Key, Value>* Dict::end() { return begin() + size(); }

bool Dict::operator==(const Dict& other) const { return equal(*this, other, 0); }

}  // namespace cairn
