// Objects that are replaced while others read and replace them, on stores that keep two writers apart only
// when a new key is created.
//
// An object N that may be replaced says in its metadata which chain it is of and its number in it: a random
// chain C and 0 when it is new. Replacing it takes three steps:
//
//   1  the record N.cairn-commit.C.<k+1>, with all of the new content: created, which one writer can do
//   2  a look back: N still is of chain C, and there is no record with a higher number
//   3  N, copied from the record on the server; then the records below k+1 are removed
//
// (1) is the commit, provided that (2) holds; otherwise the record is removed again and it is a conflict.
// What N holds, for us, is its highest record; N itself is what others read, and the next of us who reads or
// replaces it does (3) when that was left undone. The highest record of a chain stays as long as N does.
//
// Why that is right. The numbers of the records that were ever committed have no gaps, and the highest of
// them is there. A writer that read "k is the highest" and
//
//   - dies or sleeps before (1): nothing is there. When it wakes up after others, k+1 is taken, or was and is
//     retired already; then there is a higher one, which (2) finds, and its record goes. Meanwhile nobody
//     took that for the newest, since a higher one was there.
//   - dies after (1): the record is the highest, and thus the commit; readers have it and do (3).
//   - sleeps between (1) and (2): others go on from its record, which they see, and (2) then tells it of a
//     conflict where its content was in fact replaced: the one wrong answer there can be, and the safe one.
//   - sleeps before the copy of (3): when its record has been retired the copy finds nothing to copy. Before
//     that, it puts an older generation into N for a moment; who retires records looks at N afterwards and
//     copies again. We never see it: a higher record is there. Others may, for as long as a copy takes.
//   - dies in (3): N lags behind, or old records stay. Readers see the highest all the same.
//
// N that goes away (remove_chained) goes before its records: what is left of these belongs to no living
// chain, as chains are never used again. Who has put a record meanwhile finds N gone in (2).
//
// An object that somebody else wrote has no chain. Before it is replaced it gets one, made of its ETag and
// its time, so that two who do it at once agree; that copy is done only while its ETag is the same, where the
// store looks at that. Others' writes to N, which know nothing of chains, end the chain: N is what they
// wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3/objects.h"

namespace cairn::s3 {

// What N holds, and where that is.
struct Generation {
  std::string chain = {};
  std::uint64_t number = 0;
  bool chained = false;  // N says so itself
  bool lags = false;     // N has an older one
  std::string key = {};  // N's, or its highest record's
  std::uint64_t size = 0;
  std::string etag = {};
  std::chrono::system_clock::time_point modified = {};
  UserMetadata metadata = {};             // N's own
  std::vector<std::string> records = {};  // of its chain, all keys
  std::string version() const;
};

// nullopt when there is no N. One request, two when it may have been replaced.
std::optional<Generation> newest(Client& client, const std::string& key);
// The same by records of N that were listed before: one request, and what it held then or holds now.
std::optional<Generation> newest_of(Client& client, const std::string& key, std::vector<Listed> records);

// A new N, as the first of a chain. False when there is one.
bool create_chained(Client& client, const std::string& key, Bytes bytes);
// Error(kConflict) when N is another one than `expected`, or was replaced meanwhile. Without: N as it is, or
// a new one, tried again when others are faster. An error that is no conflict leaves it open whether it was
// done.
void replace_chained(Client& client, const std::string& key, Bytes bytes,
                     const std::optional<std::string>& expected);
// N, and its records. Error(kNotFound).
void remove_chained(Client& client, const std::string& key);
// Brings N up to its newest generation and removes older records, if that is allowed; never throws.
void mend(Client& client, const std::string& key, const Generation& newest) noexcept;

// "N.cairn-commit.C.00000000000000000001"
struct RecordName {
  std::string of;  // N
  std::string chain;
  std::uint64_t number = 0;
};
std::optional<RecordName> parse_record(std::string_view key);

}  // namespace cairn::s3
