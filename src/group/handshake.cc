#include "group/handshake.h"

#include <bit>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/random.h"

namespace cairn {
namespace {

constexpr std::uint64_t kMagic = 0x5043546e72696163;  // "cairnTCP"
constexpr std::uint32_t kVersion = 1;

class SipHash {
 public:
  explicit SipHash(const GroupKey& key) {
    const auto low = load<std::uint64_t>(key.data());
    const auto high = load<std::uint64_t>(key.data() + 8);
    a_ = low ^ 0x736f6d6570736575;
    b_ = high ^ 0x646f72616e646f6d;
    c_ = low ^ 0x6c7967656e657261;
    d_ = high ^ 0x7465646279746573;
  }

  // All but the last word are whole; the last one holds the length.
  std::uint64_t of(ByteSpan bytes) {
    const std::size_t whole = bytes.size() / 8 * 8;
    for (std::size_t at = 0; at < whole; at += 8) take(load<std::uint64_t>(bytes.data() + at));
    std::uint64_t last = 0;
    std::memcpy(&last, bytes.data() + whole, bytes.size() - whole);
    take(last | std::uint64_t{bytes.size()} << 56);
    c_ ^= 0xff;
    for (int i = 0; i < 4; ++i) round();
    return a_ ^ b_ ^ c_ ^ d_;
  }

 private:
  void take(std::uint64_t word) {
    d_ ^= word;
    round();
    round();
    a_ ^= word;
  }

  void round() {
    a_ += b_;
    b_ = std::rotl(b_, 13) ^ a_;
    a_ = std::rotl(a_, 32);
    c_ += d_;
    d_ = std::rotl(d_, 16) ^ c_;
    a_ += d_;
    d_ = std::rotl(d_, 21) ^ a_;
    c_ += b_;
    b_ = std::rotl(b_, 17) ^ c_;
    c_ = std::rotl(c_, 32);
  }

  std::uint64_t a_, b_, c_, d_;
};

}  // namespace

Hello make_hello(int from, int to, int ranks) {
  return {kMagic,
          kVersion,
          static_cast<std::uint32_t>(ranks),
          static_cast<std::uint32_t>(from),
          static_cast<std::uint32_t>(to),
          make_challenge()};
}

bool is_good(const Hello& hello, int me, int ranks) {
  return hello.magic == kMagic && hello.version == kVersion &&
         hello.ranks == static_cast<std::uint32_t>(ranks) && hello.from < hello.ranks &&
         hello.to == static_cast<std::uint32_t>(me) && hello.from != hello.to;
}

Challenge make_challenge() {
  Challenge challenge;
  fill_randomly(challenge);
  return challenge;
}

std::uint64_t proof_of(const GroupKey& key, End end, const Hello& hello, const Challenge& challenge) {
  std::array<std::byte, 1 + sizeof(Hello) + sizeof(Challenge)> said;
  said[0] = static_cast<std::byte>(end);
  std::memcpy(said.data() + 1, &hello, sizeof(hello));
  std::memcpy(said.data() + 1 + sizeof(hello), challenge.data(), challenge.size());
  return sip_hash(key, said);
}

std::uint64_t sip_hash(const GroupKey& key, ByteSpan bytes) { return SipHash(key).of(bytes); }

GroupKey random_group_key() {
  GroupKey key;
  fill_randomly(key);
  return key;
}

}  // namespace cairn
