// A small archive that torch wrote, for tests: they take it as it is or change single fields of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "format/zip.h"
#include "testing/errors.h"

namespace cairn::zip_test {

inline std::string from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

// What torch 2.13's PyTorchFileWriter makes of two records, data/0 of four bytes and an empty one; it adds
// three of its own. Headers start at bytes 0, 84, 192, 274, 406; the directory at 568.
inline std::string small_archive() {
  return from_hex(
      "504b0304000008080000000000000000000000000000000000000e001400617263686976652f646174612f3046421000"
      "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a00010203504b07081386b98b0400000004000000504b03040000000800000000"
      "00000000000000000000000000000d004100617263686976652f656d70747946423d005a5a5a5a5a5a5a5a5a5a5a5a5a"
      "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
      "504b0304000008080000000000000000000000000000000000000f001300617263686976652f76657273696f6e46420f"
      "005a5a5a5a5a5a5a5a5a5a5a5a5a5a5a330a504b0708d19e67550200000002000000504b030400000808000000000000"
      "00000000000000000000000011003f00617263686976652f627974656f7264657246423b005a5a5a5a5a5a5a5a5a5a5a"
      "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
      "6c6974746c65504b0708853de3190600000006000000504b030400000808000000000000000000000000000000000000"
      "1e002e00617263686976652f2e646174612f73657269616c697a6174696f6e5f696446422a005a5a5a5a5a5a5a5a5a5a"
      "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a30383236383132353030373537333637"
      "393236393030303030303230383334313534303133373233504b070856e6610c2800000028000000504b010200000000"
      "08080000000000001386b98b04000000040000000e0000000000000000000000000000000000617263686976652f6461"
      "74612f30504b01020000000000080000000000000000000000000000000000000d000000000000000000000000005400"
      "0000617263686976652f656d707479504b0102000000000808000000000000d19e675502000000020000000f00000000"
      "000000000000000000c0000000617263686976652f76657273696f6e504b0102000000000808000000000000853de319"
      "0600000006000000110000000000000000000000000012010000617263686976652f627974656f72646572504b010200"
      "000000080800000000000056e6610c28000000280000001e000000000000000000000000009601000061726368697665"
      "2f2e646174612f73657269616c697a6174696f6e5f6964504b06062c000000000000001e032d00000000000000000005"
      "0000000000000005000000000000003f010000000000003802000000000000504b060700000000770300000000000001"
      "000000504b050600000000050005003f010000380200000000");
}

inline constexpr std::size_t kDirectoryAt = 568;
inline constexpr std::size_t kSecondCentralAt = 628;

template <class T> std::string with(std::string archive, std::size_t at, T value) {
  store(archive.data() + at, value);
  return archive;
}

inline std::string with_text(std::string archive, std::size_t at, std::string_view text) {
  return archive.replace(at, text.size(), text);
}

inline ZipOptions with_deflate() {
  ZipOptions options;
  options.allow_deflate = true;
  return options;
}

inline ZipReader open(const std::string& archive, const ZipOptions& options = {}, const Limits& limits = {}) {
  return ZipReader(memory_source(as_bytes(archive)), options, limits);
}

// The code of the error that opening gives; fails the test when there is none.
inline ErrorCode refusal(const std::string& archive, const ZipOptions& options = {},
                         const Limits& limits = {}) {
  return error_of([&] { open(archive, options, limits); }).code();
}

}  // namespace cairn::zip_test
