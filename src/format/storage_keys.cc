#include "format/storage_keys.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "format/pickle_ops.h"

namespace cairn {
namespace {

using pickle::Instruction;

// How long a pickle may become when what it fetches is written out.
constexpr std::uint64_t kMostRenamedBytes = 16ULL << 20;
constexpr std::uint64_t kMostGrowth = 16;

bool is_put(const Instruction& at) {
  return at.op == pickle::kBinPut || at.op == pickle::kLongBinPut || at.op == pickle::kMemoize;
}
bool is_get(const Instruction& at) { return at.op == pickle::kBinGet || at.op == pickle::kLongBinGet; }
bool is_string(const Instruction& at) {
  return at.op == pickle::kBinUnicode || at.op == pickle::kShortBinUnicode || at.op == pickle::kBinUnicode8;
}
bool is_integer(const Instruction& at) {
  return at.op == pickle::kBinInt || at.op == pickle::kBinInt1 || at.op == pickle::kBinInt2 ||
         at.op == pickle::kLong1;
}

// A program as a list of instructions, with what each place of the memo holds where that is a string.
class Program {
 public:
  explicit Program(std::string_view bytes) : bytes_(bytes) {
    std::optional<Instruction> at = pickle::decode(bytes, 0);
    for (; at && at->op != pickle::kStop; at = pickle::decode(bytes, at->next)) add(*at);
    if (!at || at->next != bytes.size())
      throw Error(ErrorCode::kCorrupt, "an object that is no whole pickle");
    for (std::size_t i = 0; i < instructions_.size(); ++i)
      if (instructions_[i].op == pickle::kBinPersid) find_key(i);
  }

  const std::vector<Instruction>& instructions() const { return instructions_; }
  std::string_view bytes() const { return bytes_; }
  // Instructions that bring the key of a storage, in order, and the key.
  const std::map<std::size_t, std::string_view>& keys() const { return keys_; }
  std::uint64_t memo_of(std::size_t put) const { return puts_.at(put); }

 private:
  void add(const Instruction& at) {
    if (at.op == pickle::kFrame) return;  // says only how many bytes to read ahead
    if (is_put(at)) {
      const std::uint64_t number = at.op == pickle::kMemoize ? memo_size_ : at.number;
      memo_size_ = std::max(memo_size_, number + 1);
      puts_[instructions_.size()] = number;
      if (!instructions_.empty() && is_string(instructions_.back()))
        texts_[number] = instructions_.back().text;
    }
    instructions_.push_back(at);
  }

  // Steps back over a string, given as it is or taken from the memo. Returns where it begins.
  std::size_t string_before(std::size_t end) const {
    if (end > 0 && is_get(instructions_[end - 1])) return end - 1;
    if (end > 1 && is_put(instructions_[end - 1])) --end;
    if (end > 0 && is_string(instructions_[end - 1])) return end - 1;
    throw Error(ErrorCode::kUnsupported,
                "a storage is not described as ('storage', class, key, location, size)");
  }

  void find_key(std::size_t persid) {
    std::size_t at = persid;
    if (at > 1 && is_put(instructions_[at - 1])) --at;
    const bool known =
        at > 2 && instructions_[at - 1].op == pickle::kTupleOp && is_integer(instructions_[at - 2]);
    const std::size_t key = string_before(string_before(known ? at - 2 : 0));
    const Instruction& brings = instructions_[key];
    if (!is_get(brings)) {
      keys_[key] = brings.text;
    } else if (const auto text = texts_.find(brings.number); text != texts_.end()) {
      keys_[key] = text->second;
    } else {
      throw Error(ErrorCode::kUnsupported, "the key of a storage is no string");
    }
  }

  std::string_view bytes_;
  std::vector<Instruction> instructions_;
  std::uint64_t memo_size_ = 0;
  // Texts are views of the program. Places in the memo are the file's: in a table they could all collide.
  std::map<std::size_t, std::uint64_t> puts_;        // instruction -> place in the memo
  std::map<std::uint64_t, std::string_view> texts_;  // place in the memo -> string
  std::map<std::size_t, std::string_view> keys_;
};

template <class T> void push(std::string& text, char op, T value) {
  text.push_back(op);
  put(text, value);
}

void push_string(std::string& text, std::string_view string) {
  push(text, pickle::kBinUnicode, static_cast<std::uint32_t>(string.size()));
  text += string;
}

}  // namespace

std::vector<std::string> storage_keys(std::string_view pickle) {
  const Program program(pickle);
  std::vector<std::string> keys;
  SetOfNames<std::string_view> seen;
  for (const auto& [at, key] : program.keys())
    if (seen.insert(key).second) keys.emplace_back(key);
  return keys;
}

// A key leaves the memo: what comes from there later, as a key or as plain text, is written out. The rest of
// the memo is numbered anew, without the gaps.
std::string rename_storages(std::string_view pickle,
                            const std::function<std::string(const std::string& key)>& rename) {
  const Program program(pickle);
  if (program.keys().empty()) return std::string(pickle);
  const std::vector<Instruction>& all = program.instructions();
  std::map<std::uint64_t, std::string_view> gone;  // from the memo
  std::map<std::uint64_t, std::uint32_t> numbers;
  std::string renamed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (renamed.size() > kMostRenamedBytes + kMostGrowth * pickle.size())
      throw Error(ErrorCode::kLimit, "an object that names the key of a storage far too often");
    const auto key = program.keys().find(i);
    if (key != program.keys().end()) {
      push_string(renamed, rename(std::string(key->second)));
      const bool memoised = !is_get(all[i]) && i + 1 < all.size() && is_put(all[i + 1]);
      if (memoised) gone[program.memo_of(++i)] = key->second;
    } else if (is_get(all[i]) && gone.contains(all[i].number)) {
      push_string(renamed, gone[all[i].number]);
    } else if (is_get(all[i]) && numbers.contains(all[i].number)) {
      push(renamed, pickle::kLongBinGet, numbers[all[i].number]);
    } else if (is_put(all[i])) {
      gone.erase(program.memo_of(i));
      const auto number = static_cast<std::uint32_t>(numbers.size());
      push(renamed, pickle::kLongBinPut, numbers.emplace(program.memo_of(i), number).first->second);
    } else {
      renamed += pickle.substr(all[i].at, all[i].next - all[i].at);
    }
  }
  renamed.push_back(pickle::kStop);
  return renamed;
}

}  // namespace cairn
