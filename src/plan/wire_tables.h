// The tables of a message: names and lists of numbers, each stored once and meant by its position.
#pragma once

#include <string>
#include <string_view>

#include "base/name_table.h"
#include "base/pod_vector.h"
#include "base/wire_bytes.h"
#include "plan/item_tables.h"
#include "plan/wire_header.h"

namespace cairn {

// Lengths, then the text.
inline void put_names(std::string& out, const NameTable& names, std::uint32_t& text_bytes) {
  std::string text;
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    put(out, static_cast<std::uint32_t>(names[id].size()));
    text.append(names[id]);
  }
  if (text.size() >= kNoEntry) throw Error(ErrorCode::kLimit, "the names of a message are larger than 4 GiB");
  text_bytes = static_cast<std::uint32_t>(text.size());
  out += text;
}

// Ranks, then values; lists of up to 255. `values` counts them.
inline void put_lists(std::string& out, const DimsTable& table, std::uint32_t& values) {
  for (std::uint32_t id = 0; id < table.size(); ++id) {
    if (table[id].size() > kMostWireRank) throw Error(ErrorCode::kLimit, "a list in a message is too long");
    out.push_back(static_cast<char>(table[id].size()));
  }
  for (std::uint32_t id = 0; id < table.size(); ++id) {
    out.append(reinterpret_cast<const char*>(table[id].data()), table[id].size_bytes());
    values += static_cast<std::uint32_t>(table[id].size());
  }
}

// The names of a message, found by number. Views live as long as the message.
class NameReader {
 public:
  NameReader(WireReader& reader, std::uint32_t count, std::uint64_t text_bytes) : reader_(reader) {
    const ByteSpan lengths = reader.take(std::uint64_t{count} * 4);
    text_ = reader.text(text_bytes);
    std::uint64_t end = 0;
    ends_.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      end += load<std::uint32_t>(lengths.data() + std::size_t{4} * i);
      if (end > text_.size()) reader.fail("has names longer than their text");
      ends_.push_back(end);
    }
    if (end != text_.size()) reader.fail("contradicts itself");
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }
  std::string_view operator[](std::uint32_t id) const {
    if (id >= ends_.size()) reader_.fail("refers to something it does not hold");
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return text_.substr(begin, ends_[id] - begin);
  }

 private:
  WireReader& reader_;
  std::string_view text_;
  PodVector<std::uint64_t> ends_;
};

// The lists of a message, found by number.
class ListReader {
 public:
  ListReader(WireReader& reader, std::uint32_t count, std::uint64_t values) : reader_(reader) {
    const ByteSpan ranks = reader.take(count);
    values_ = reader.take(values * 8);
    std::uint64_t end = 0;
    ends_.reserve(count);
    for (const std::byte rank : ranks) ends_.push_back(end += static_cast<std::uint8_t>(rank));
    if (end != values) reader.fail("has lists that do not add up");
  }

  std::size_t length(std::uint32_t id) const {
    check(id);
    return ends_[id] - begin(id);
  }
  std::int64_t at(std::uint32_t id, std::size_t i) const {
    return load<std::int64_t>(values_.data() + 8 * (begin(id) + i));
  }
  Shape shape(std::uint32_t id) const {
    Shape shape(length(id), 0);
    for (std::size_t i = 0; i < shape.rank(); ++i) shape[i] = at(id, i);
    return shape;
  }

 private:
  void check(std::uint32_t id) const {
    if (id >= ends_.size()) reader_.fail("refers to something it does not hold");
  }
  std::uint64_t begin(std::uint32_t id) const { return id == 0 ? 0 : ends_[id - 1]; }

  WireReader& reader_;
  ByteSpan values_;
  PodVector<std::uint64_t> ends_;
};

}  // namespace cairn
