// What every fuzz target shares: how an input is judged, and with which limits.
//
// A target is one file that defines run() and LLVMFuzzerTestOneInput. libFuzzer drives the second;
// replay_main.cc drives either, so that the same code replays a corpus in a plain build.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "cairn/error.h"
#include "cairn/limits.h"

namespace cairn::fuzz {

// Defined by each target: reads `input` and checks what must hold of everything that is accepted.
// Throws Error to refuse the input; any other exception, and fail(), is a bug in the library.
void run(ByteSpan input, const Limits& limits);

// A property is broken. Aborts, so that libFuzzer keeps the input.
[[noreturn]] inline void fail(std::string_view property) {
  std::fprintf(stderr, "broken property: %.*s\n", static_cast<int>(property.size()), property.data());
  std::abort();
}

inline void require(bool holds, std::string_view property) {
  if (!holds) fail(property);
}

// Runs what was made from an accepted input a second time: an Error there is a broken property too.
template <class F> auto must(std::string_view property, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    fail(property);
  }
}

// Limits low enough that an input of a few hundred bytes reaches both sides of each.
inline Limits small_limits() {
  Limits limits;
  limits.metadata_bytes = 64 << 10;
  limits.blob_pickle_bytes = 16 << 10;
  limits.torch_pickle_bytes = 64 << 10;
  limits.depth = 12;
  limits.pickle_stack = 256;
  limits.memo_slack = 16;
  limits.string_bytes = 512;
  limits.torch_string_bytes = 1024;
  limits.name_bytes = 64;
  limits.path_bytes = 300;
  limits.tensor_rank = 8;
  limits.blob_zip_entries = 12;
  limits.zip_entries = 16;
  limits.zip_name_bytes = 64;
  limits.safetensors_header_bytes = 4096;
  limits.safetensors_tensors = 16;
  limits.json_bytes = 4096;
  limits.json_depth = 4;
  limits.manifest_bytes = 64 << 10;
  return limits;
}

// "ok", or the name of the code run() refused the input with.
inline std::string_view verdict_of(ByteSpan input, const Limits& limits) {
  try {
    run(input, limits);
  } catch (const Error& e) {
    require(e.code() != ErrorCode::kInternal, e.what());
    return name_of(e.code());
  }
  return "ok";
}

inline int one_input(const std::uint8_t* data, std::size_t size) {
  verdict_of({reinterpret_cast<const std::byte*>(data), size}, small_limits());
  return 0;
}

// Some targets have variants, chosen by CAIRN_FUZZ_MODE: "blob", "deflate", "strict-crc".
inline bool mode_is(std::string_view mode) {
  const char* text = std::getenv("CAIRN_FUZZ_MODE");
  return text != nullptr && mode == text;
}

// Sets one limit by its field's name; false for a name there is not.
inline bool set_limit(Limits& limits, std::string_view name, std::uint64_t value) {
  struct Field {
    std::string_view name;
    std::uint64_t Limits::*wide;
    std::uint32_t Limits::*narrow;
  };
  static constexpr Field kFields[] = {
      {"metadata_bytes", &Limits::metadata_bytes, nullptr},
      {"blob_pickle_bytes", &Limits::blob_pickle_bytes, nullptr},
      {"torch_pickle_bytes", &Limits::torch_pickle_bytes, nullptr},
      {"depth", nullptr, &Limits::depth},
      {"pickle_stack", nullptr, &Limits::pickle_stack},
      {"memo_slack", nullptr, &Limits::memo_slack},
      {"string_bytes", &Limits::string_bytes, nullptr},
      {"torch_string_bytes", &Limits::torch_string_bytes, nullptr},
      {"name_bytes", &Limits::name_bytes, nullptr},
      {"path_bytes", &Limits::path_bytes, nullptr},
      {"tensor_rank", nullptr, &Limits::tensor_rank},
      {"blob_zip_entries", &Limits::blob_zip_entries, nullptr},
      {"zip_entries", &Limits::zip_entries, nullptr},
      {"zip_name_bytes", &Limits::zip_name_bytes, nullptr},
      {"deflate_ratio", &Limits::deflate_ratio, nullptr},
      {"safetensors_header_bytes", &Limits::safetensors_header_bytes, nullptr},
      {"safetensors_tensors", &Limits::safetensors_tensors, nullptr},
      {"json_bytes", &Limits::json_bytes, nullptr},
      {"json_depth", nullptr, &Limits::json_depth},
      {"manifest_bytes", &Limits::manifest_bytes, nullptr},
  };
  for (const Field& field : kFields) {
    if (field.name != name) continue;
    if (field.wide != nullptr) limits.*field.wide = value;
    if (field.narrow != nullptr) limits.*field.narrow = static_cast<std::uint32_t>(value);
    return true;
  }
  return false;
}

// The default limits, changed by the environment: CAIRN_FUZZ_LIMITS="depth=8,memo_slack=2".
inline Limits limits_from_environment() {
  Limits limits;
  const char* text = std::getenv("CAIRN_FUZZ_LIMITS");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    std::uint64_t value = 0;
    const char* end = pair.data() + pair.size();
    const bool number =
        equals < pair.size() && std::from_chars(pair.data() + equals + 1, end, value).ptr == end;
    if (!number || !set_limit(limits, pair.substr(0, equals), value)) {
      std::fprintf(stderr, "CAIRN_FUZZ_LIMITS: cannot read '%.*s'\n", static_cast<int>(pair.size()),
                   pair.data());
      std::exit(2);
    }
  }
  return limits;
}

}  // namespace cairn::fuzz
