// Archives put together field by field, for tests: in forms that torch does not write.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace cairn::zip_test {

inline constexpr std::uint32_t kDate = 0x5a215a21;

// Sizes in the local headers, no zip64 records: as Python's zipfile writes small archives.
class Plain {
 public:
  struct Record {
    std::string name, data;
    std::uint16_t flags = 0, method = 0;
    std::uint64_t size = 0;
    std::string local_extra;
    std::uint32_t unpacked_crc = 0x352441c2;  // of "abc", where the data are compressed

    bool is_deferred() const { return (flags & 8) != 0; }
    std::uint32_t crc() const { return method == 0 ? crc32(as_bytes(data)) : unpacked_crc; }
  };
  std::vector<Record> records;

  std::string build() const {
    std::string all;
    std::string directory;
    for (const Record& r : records) {
      const auto offset = static_cast<std::uint32_t>(all.size());
      append_local(all, r);
      append_central(directory, r, offset);
    }
    return all + directory + end_record(directory.size(), all.size());
  }

  template <class T> static void push(std::string& s, T v) {
    s.append(reinterpret_cast<const char*>(&v), sizeof v);
  }

 private:
  static void push_sums(std::string& s, const Record& r) {
    push(s, r.crc());
    push(s, static_cast<std::uint32_t>(r.data.size()));
    push(s, static_cast<std::uint32_t>(r.size));
  }
  static void push_kind(std::string& s, const Record& r) {
    push(s, r.flags);
    push(s, r.method);
    push(s, kDate);
  }

  static void append_local(std::string& all, const Record& r) {
    all += "PK\3\4";
    push<std::uint16_t>(all, 20);
    push_kind(all, r);
    if (r.is_deferred()) all.append(12, '\0');
    if (!r.is_deferred()) push_sums(all, r);
    push(all, static_cast<std::uint16_t>(r.name.size()));
    push(all, static_cast<std::uint16_t>(r.local_extra.size()));
    all += r.name + r.local_extra + r.data;
    if (!r.is_deferred()) return;
    all += "PK\7\10";
    push_sums(all, r);
  }

  static void append_central(std::string& directory, const Record& r, std::uint32_t offset) {
    directory += "PK\1\2";
    push<std::uint32_t>(directory, 0x00140314);
    push_kind(directory, r);
    push_sums(directory, r);
    push(directory, static_cast<std::uint16_t>(r.name.size()));
    directory.append(8, '\0');
    push<std::uint32_t>(directory, 0x01a40000);
    push(directory, offset);
    directory += r.name;
  }

  std::string end_record(std::size_t directory_size, std::size_t directory_at) const {
    std::string end = "PK\5\6";
    push<std::uint32_t>(end, 0);
    for (int i = 0; i < 2; ++i) push(end, static_cast<std::uint16_t>(records.size()));
    push(end, static_cast<std::uint32_t>(directory_size));
    push(end, static_cast<std::uint32_t>(directory_at));
    push<std::uint16_t>(end, 0);
    return end;
  }
};

inline Plain::Record stored(std::string name, std::string data, std::uint16_t flags = 0) {
  const std::uint64_t size = data.size();
  return {std::move(name), std::move(data), flags, 0, size, ""};
}

inline std::string deflate_raw(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace cairn::zip_test
