// How two ranks come to know that the other end of a connection is the other rank.
//
//   who dials                                   who listens
//   Hello: from whom to whom, a random number ->
//                                            <- Challenge: another random number
//   Proof: that it knows the key, for both    ->
//                                            <- Proof: that it knows it too
//
// With its Proof each end says how many letters of the other it has, so that the rest can be sent again.
// All numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "cairn/tcp_group.h"

namespace cairn {

using Challenge = std::array<std::byte, 16>;

struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ranks;
  std::uint32_t from;
  std::uint32_t to;
  Challenge number;
};
static_assert(sizeof(Hello) == 40);

struct Proof {
  std::uint64_t proof;
  std::uint64_t letters;  // that it has of the other end
};
static_assert(sizeof(Proof) == 16);

Hello make_hello(int from, int to, int ranks);
// Whether it is one, and for this rank.
bool is_good(const Hello& hello, int me, int ranks);
Challenge make_challenge();

enum class End : char { kDialler = 'd', kListener = 'l' };
// What only those can know who have the key.
std::uint64_t proof_of(const GroupKey& key, End end, const Hello& hello, const Challenge& challenge);

// SipHash-2-4, Aumasson and Bernstein's keyed hash of short messages: without the key nobody finds it.
std::uint64_t sip_hash(const GroupKey& key, ByteSpan bytes);

}  // namespace cairn
