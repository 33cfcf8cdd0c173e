// Small things that S3's protocol is made of: digests, their texts, and three ways to write a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace cairn::s3 {

using Time = std::chrono::system_clock::time_point;
using Sha256 = std::array<std::byte, 32>;

std::string hex(ByteSpan bytes);  // "00ff", small letters
std::string base64(ByteSpan bytes);

// Error(kInternal) when OpenSSL refuses.
Sha256 sha256(ByteSpan bytes);
Sha256 hmac_sha256(ByteSpan key, std::string_view text);
// As Content-MD5 has it, of all pieces together. Error(kUnsupported) where MD5 is switched off (FIPS).
std::string md5_base64(std::span<const ByteSpan> pieces);

// nullopt for anything that is no such time.
std::optional<Time> time_of_http(std::string_view text);  // "Fri, 24 May 2013 00:00:00 GMT"
std::optional<Time> time_of_iso(std::string_view text);   // "2013-05-24T00:00:00Z", with a fraction or none
// "20130524T000000Z", as a signature has it; the first eight letters are the day.
std::string signing_time(Time time);

}  // namespace cairn::s3
