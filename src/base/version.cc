#include "cairn/version.h"

#ifndef CAIRN_VERSION
#define CAIRN_VERSION "unknown"
#endif

namespace cairn {
namespace {

#ifdef CAIRN_HAVE_ISAL
constexpr bool kIsal = true;
#else
constexpr bool kIsal = false;
#endif
#ifdef CAIRN_HAVE_LIBDEFLATE
constexpr bool kLibdeflate = true;
#else
constexpr bool kLibdeflate = false;
#endif
#ifdef CAIRN_HAVE_LIBURING
constexpr bool kUring = true;
#else
constexpr bool kUring = false;
#endif
#ifdef CAIRN_HAVE_S3
constexpr bool kS3 = true;
#else
constexpr bool kS3 = false;
#endif
#ifdef CAIRN_HAVE_ZSTD
constexpr bool kZstd = true;
#else
constexpr bool kZstd = false;
#endif

constexpr Feature kFeatures[] = {
    {"zlib", "checksums and deflated archives", true},
    {"isa-l", "checksums at memory speed", kIsal},
    {"libdeflate", "the same where there is no isa-l", kLibdeflate},
    {"xxhash", "fast content hashes", true},
    {"liburing", "many reads and writes in flight", kUring},
    {"zstd", "items stored with the zstd transform", kZstd},
    {"s3", "object stores: s3:// (libcurl and OpenSSL)", kS3},
};

}  // namespace

std::string_view version() { return CAIRN_VERSION; }

std::span<const Feature> features() { return kFeatures; }

}  // namespace cairn
