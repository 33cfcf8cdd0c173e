#include "storage/s3/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "cairn/error.h"
#include "storage/s3/libraries.h"

namespace cairn::s3 {
namespace {

const unsigned char* octets(ByteSpan bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

// Takes the parts of a time from the front of a text, and remembers whether all of them were there.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : rest_(text) {}

  int number(std::size_t digits) {
    int value = 0;
    const std::string_view text = rest_.substr(0, digits);
    const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (text.size() != digits || !plain) return fail();
    std::from_chars(text.data(), text.data() + digits, value);
    rest_.remove_prefix(digits);
    return value;
  }
  bool has(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void need(std::string_view text) {
    if (!has(text)) fail();
  }
  // The position, from 1, in a row of names of three letters; 0 when it is none of them.
  unsigned one_of(std::string_view names) {
    const std::string_view text = rest_.substr(0, 3);
    for (std::size_t i = 0; text.size() == 3 && i < names.size(); i += 3)
      if (has(names.substr(i, 3))) return static_cast<unsigned>(i / 3 + 1);
    fail();
    return 0;
  }
  // Digits after the point, to the millisecond; any number of them.
  std::chrono::milliseconds fraction() {
    int value = 0, digits = 0;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      if (digits++ < 3) value = 10 * value + (rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    if (digits == 0) fail();
    for (; digits < 3; ++digits) value *= 10;
    return std::chrono::milliseconds(value);
  }
  bool at_end() const { return good_ && rest_.empty(); }

 private:
  int fail() {
    good_ = false;
    return 0;
  }

  std::string_view rest_;
  bool good_ = true;
};

struct DayTime {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int hour = 0, minute = 0, second = 0;
};

void read_clock(TimeReader& reader, DayTime& at) {
  at.hour = reader.number(2);
  reader.need(":");
  at.minute = reader.number(2);
  reader.need(":");
  at.second = reader.number(2);
}

std::optional<Time> time_of_parts(const DayTime& at) {
  using namespace std::chrono;
  const year_month_day date{year(at.year), month(at.month), day(at.day)};
  // 60 is a leap second.
  if (!date.ok() || at.hour > 23 || at.minute > 59 || at.second > 60) return std::nullopt;
  return Time(sys_days(date)) + hours(at.hour) + minutes(at.minute) + seconds(at.second);
}

}  // namespace

std::string hex(ByteSpan bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string base64(ByteSpan bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL ends it with a NUL
  const int length = crypto().encode_block(reinterpret_cast<unsigned char*>(text.data()), octets(bytes),
                                           static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Sha256 sha256(ByteSpan bytes) {
  Sha256 sum;
  if (crypto().digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(sum.data()), nullptr,
                      crypto().sha256(), nullptr) != 1)
    throw Error(ErrorCode::kInternal, "OpenSSL computes no SHA-256");
  return sum;
}

Sha256 hmac_sha256(ByteSpan key, std::string_view text) {
  Sha256 sum;
  if (crypto().hmac(crypto().sha256(), key.data(), static_cast<int>(key.size()), octets(as_bytes(text)),
                    text.size(), reinterpret_cast<unsigned char*>(sum.data()), nullptr) == nullptr)
    throw Error(ErrorCode::kInternal, "OpenSSL computes no HMAC");
  return sum;
}

std::string md5_base64(std::span<const ByteSpan> pieces) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(crypto().context_new(),
                                                                        crypto().context_free);
  std::array<std::byte, 16> sum;
  bool good = context != nullptr && crypto().digest_init(context.get(), crypto().md5(), nullptr) == 1;
  for (const ByteSpan piece : pieces)
    good = good && crypto().digest_update(context.get(), piece.data(), piece.size()) == 1;
  if (!good ||
      crypto().digest_final(context.get(), reinterpret_cast<unsigned char*>(sum.data()), nullptr) != 1)
    throw Error(ErrorCode::kUnsupported, "this machine's OpenSSL computes no MD5, which Content-MD5 needs");
  return base64(sum);
}

std::optional<Time> time_of_http(std::string_view text) {
  TimeReader reader(text);
  DayTime at;
  reader.one_of("MonTueWedThuFriSatSun");
  reader.need(", ");
  at.day = static_cast<unsigned>(reader.number(2));
  reader.need(" ");
  at.month = reader.one_of("JanFebMarAprMayJunJulAugSepOctNovDec");
  reader.need(" ");
  at.year = reader.number(4);
  reader.need(" ");
  read_clock(reader, at);
  reader.need(" GMT");
  return reader.at_end() ? time_of_parts(at) : std::nullopt;
}

std::optional<Time> time_of_iso(std::string_view text) {
  TimeReader reader(text);
  DayTime at;
  at.year = reader.number(4);
  reader.need("-");
  at.month = static_cast<unsigned>(reader.number(2));
  reader.need("-");
  at.day = static_cast<unsigned>(reader.number(2));
  reader.need("T");
  read_clock(reader, at);
  const auto fraction = reader.has(".") ? reader.fraction() : std::chrono::milliseconds(0);
  if (!reader.has("Z")) reader.need("+00:00");
  const auto whole = reader.at_end() ? time_of_parts(at) : std::nullopt;
  return whole ? std::optional(*whole + fraction) : std::nullopt;
}

std::string signing_time(Time time) {
  using namespace std::chrono;
  const auto second = floor<seconds>(time);
  const auto day_of = floor<days>(second);
  const year_month_day date(day_of);
  const hh_mm_ss clock(second - day_of);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace cairn::s3
