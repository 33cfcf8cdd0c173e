// Encodings, hashes and dates as the loopback S3 server needs them; apart from those of the client, which it
// checks.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::loopback {

using Clock = std::chrono::system_clock;
using Texts = std::map<std::string, std::string>;

std::string in_lower_case(std::string_view text);
std::string trimmed(std::string_view text);

// "%2F" -> "/"; in a query "+" is a space. Refusal(400) for "%" without two digits.
std::string from_percents(std::string_view text, bool query);
std::string to_percents(std::string_view text, bool keep_slashes);
// "a=b&c" -> {a: b, c: ""}
Texts query_of(std::string_view raw);

std::string escaped(std::string_view text);  // for XML
// The texts of all elements <NAME>, in order, without looking at what is around them.
std::vector<std::string> texts_of(std::string_view xml, const std::string& name);

std::string hex(std::string_view bytes);
std::string sha256(std::string_view bytes);  // 32 bytes
std::string hmac_sha256(std::string_view key, std::string_view text);
std::string md5(std::span<const std::byte> bytes);  // 16 bytes
std::string base64(std::string_view bytes);

std::string http_date(Clock::time_point time);   // "Thu, 19 Nov 2026 01:00:00 GMT"
std::string xml_date(Clock::time_point time);    // "2026-11-19T01:00:00.123Z"
std::string short_date(Clock::time_point time);  // "20261119T010000Z"

// An answer that is an error.
struct Refusal {
  int status = 400;
  std::string code;
  Texts more = {};  // elements of the <Error>, besides its code
};

}  // namespace cairn::loopback
