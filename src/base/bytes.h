// Bytes in memory: little-endian numbers and views.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace cairn {

static_assert(std::endian::native == std::endian::little, "the formats here are little-endian");

using ByteSpan = std::span<const std::byte>;

// Reads a number from memory that need not be aligned. The caller has checked that it is there.
template <class T> T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T> void store(void* to, T value) { std::memcpy(to, &value, sizeof(T)); }

template <class T> void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline ByteSpan as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace cairn
