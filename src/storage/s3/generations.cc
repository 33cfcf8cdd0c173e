#include "storage/s3/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

constexpr const char* kChain = "cairn-chain";
constexpr const char* kNumber = "cairn-number";
constexpr std::string_view kInfix = ".cairn-commit.";
constexpr std::size_t kDigitsOfNumber = 20;
constexpr std::size_t kLongestChain = 100;
constexpr int kMostTries = 16;  // when others are faster
constexpr int kMostCopies = 5;

bool fits_chain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string records_of(const std::string& key, const std::string& chain) {
  return key + std::string(kInfix) + chain + ".";
}

std::string record_key(const std::string& key, const std::string& chain, std::uint64_t number) {
  return fmt::format("{}{:020}", records_of(key, chain), number);
}

UserMetadata with_chain(UserMetadata metadata, const std::string& chain, std::uint64_t number) {
  metadata[kChain] = chain;
  metadata[kNumber] = std::to_string(number);
  return metadata;
}

// What N says of itself; for one that has no chain, that which it would be given.
Generation generation_of(const std::string& key, ObjectHead head) {
  Generation own{.key = key, .size = head.size, .etag = head.etag, .modified = head.modified};
  own.metadata = std::move(head.metadata);
  const auto chain = own.metadata.find(kChain), number = own.metadata.find(kNumber);
  if (chain != own.metadata.end() && number != own.metadata.end()) {
    const auto value = decimal(number->second);
    const std::string& name = chain->second;
    own.chained = value && !name.empty() && name.size() <= kLongestChain &&
                  std::all_of(name.begin(), name.end(), fits_chain);
    if (own.chained) own.chain = name, own.number = *value;
  }
  if (own.chained) return own;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(own.modified.time_since_epoch());
  own.chain = fmt::format("e{}-{:x}", own.etag.substr(0, 64), seconds.count());
  std::replace_if(
      own.chain.begin(), own.chain.end(), [](char c) { return !fits_chain(c); }, '-');
  return own;
}

// What records of N's chain make of it.
void add_records(Generation& found, const std::string& key, std::vector<Listed> records) {
  for (Listed& listed : records) {
    const auto record = parse_record(listed.key);
    if (!record || record->of != key || record->chain != found.chain) continue;
    found.records.push_back(listed.key);
    if (record->number <= found.number) continue;
    found.lags = true;
    found.number = record->number;
    found.key = std::move(listed.key);
    found.size = listed.size;
    found.etag = std::move(listed.etag);
    found.modified = listed.modified;
  }
}

std::optional<Generation> own_generation(Client& client, const std::string& key) {
  auto there = head(client, key);
  if (!there) return std::nullopt;
  return generation_of(key, std::move(*there));
}

Error somebody_was_faster(const Client& client, const std::string& key) {
  return Error(ErrorCode::kConflict, "somebody else has replaced or removed it meanwhile")
      .in_file(client.shown(key));
}

// True when N has the content of that record or a later one: it is copied there when it has not. When the
// record is gone, there is a later one.
bool bring_up(Client& client, const std::string& key, const std::string& chain, std::uint64_t number) {
  for (int i = 0; i < kMostCopies; ++i) {
    const auto own = own_generation(client, key);
    if (!own || own->chain != chain) return false;
    if (own->number >= number) return true;
    try {
      copy(client, record_key(key, chain, number), key);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFound) return false;
      throw;
    }
  }
  return false;
}

void finish(Client& client, const std::string& key, const std::string& chain, std::uint64_t number,
            std::vector<std::string> records) {
  if (!bring_up(client, key, chain, number)) return;
  const std::string mine = record_key(key, chain, number);
  std::erase_if(records, [&](const std::string& record) { return record >= mine; });
  if (records.empty()) return;
  remove(client, records);
  bring_up(client, key, chain, number);  // a copy of one of these may have been under way
}

enum class Outcome { kDone, kLost };

// One try to be the next after `now`.
Outcome try_to_follow(Client& client, const std::string& key, Bytes bytes, const Generation& now) {
  if (!now.chained) {
    try {
      copy(client, key, key, with_chain(now.metadata, now.chain, 0), now.etag);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFound || e.code() == ErrorCode::kConflict) return Outcome::kLost;
      throw;
    }
  }
  const std::uint64_t number = now.number + 1;
  const std::string record = record_key(key, now.chain, number);
  if (!put(client, record, bytes, with_chain({}, now.chain, number), true)) return Outcome::kLost;
  const auto after = newest(client, key);
  if (!after || !after->chained || after->chain != now.chain || after->number != number) {
    remove(client, {record});
    return Outcome::kLost;
  }
  finish(client, key, now.chain, number, after->records);
  return Outcome::kDone;
}

}  // namespace

std::string Generation::version() const { return fmt::format("{}.{}", chain, number); }

std::optional<RecordName> parse_record(std::string_view key) {
  const std::size_t infix = key.rfind(kInfix);
  if (infix == key.npos || infix == 0) return std::nullopt;
  const std::string_view rest = key.substr(infix + kInfix.size());
  const std::size_t dot = rest.find('.');
  if (dot == rest.npos || dot == 0 || rest.size() - dot - 1 != kDigitsOfNumber) return std::nullopt;
  const auto number = decimal(rest.substr(dot + 1));
  const std::string_view chain = rest.substr(0, dot);
  if (!number || !std::all_of(chain.begin(), chain.end(), fits_chain)) return std::nullopt;
  return RecordName{std::string(key.substr(0, infix)), std::string(chain), *number};
}

std::optional<Generation> newest(Client& client, const std::string& key) {
  auto found = own_generation(client, key);
  if (found && found->chained)
    add_records(*found, key, list(client, records_of(key, found->chain), false).objects);
  return found;
}

std::optional<Generation> newest_of(Client& client, const std::string& key, std::vector<Listed> records) {
  auto found = own_generation(client, key);
  if (found && found->chained) add_records(*found, key, std::move(records));
  return found;
}

bool create_chained(Client& client, const std::string& key, Bytes bytes) {
  return put(client, key, bytes, with_chain({}, random_token(), 0), true);
}

void replace_chained(Client& client, const std::string& key, Bytes bytes,
                     const std::optional<std::string>& expected) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    const auto now = newest(client, key);
    if (expected && (!now || now->version() != *expected)) break;
    if (!now && create_chained(client, key, bytes)) return;
    if (now && try_to_follow(client, key, bytes, *now) == Outcome::kDone) return;
  }
  throw somebody_was_faster(client, key);
}

void remove_chained(Client& client, const std::string& key) {
  const auto first = own_generation(client, key);
  if (!first) throw Error(ErrorCode::kNotFound, "no such object").in_file(client.shown(key));
  remove(client, {key});
  if (!first->chained) return;
  // A replacement that was under way may have copied its record once more.
  for (int i = 0; i < kMostCopies; ++i) {
    std::vector<std::string> records;
    for (const Listed& listed : list(client, records_of(key, first->chain), false).objects)
      records.push_back(listed.key);
    if (records.empty()) return;
    remove(client, records);
    const auto again = own_generation(client, key);
    if (!again || again->chain != first->chain) return;
    remove(client, {key});
  }
}

void mend(Client& client, const std::string& key, const Generation& newest) noexcept {
  try {
    if (newest.lags || newest.records.size() > 1)
      finish(client, key, newest.chain, newest.number, newest.records);
  } catch (...) {
    // It may not be allowed. What was read is right all the same.
  }
}

}  // namespace cairn::s3
