#include "testing/s3_words.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

namespace cairn::loopback {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string digest(const EVP_MD* kind, const void* bytes, std::size_t size) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> to = {};
  unsigned length = 0;
  EVP_Digest(bytes, size, to.data(), &length, kind, nullptr);
  return {to.begin(), to.begin() + length};
}

std::string date(Clock::time_point time, const char* format) {
  const std::time_t seconds = Clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

std::string unescaped(std::string text) {
  static const std::array<std::pair<std::string_view, std::string_view>, 7> kEntities = {{{"&lt;", "<"},
                                                                                          {"&gt;", ">"},
                                                                                          {"&quot;", "\""},
                                                                                          {"&apos;", "'"},
                                                                                          {"&#34;", "\""},
                                                                                          {"&#10;", "\n"},
                                                                                          {"&amp;", "&"}}};
  for (const auto& [entity, character] : kEntities)
    for (std::size_t at = 0; (at = text.find(entity, at)) != std::string::npos; at += character.size())
      text.replace(at, entity.size(), character);
  return text;
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return std::string(text);
}

std::string from_percents(std::string_view text, bool query) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && query) {
      plain += ' ';
    } else if (text[i] != '%') {
      plain += text[i];
    } else {
      const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
      if (high < 0 || low < 0) throw Refusal{400, "InvalidURI"};
      plain += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return plain;
}

std::string to_percents(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
                      c == '~' || (c == '/' && keep_slashes);
    encoded += kept ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

Texts query_of(std::string_view raw) {
  Texts query;
  while (!raw.empty()) {
    const std::string_view one = raw.substr(0, raw.find('&'));
    raw.remove_prefix(std::min(raw.size(), one.size() + 1));
    const std::string_view name = one.substr(0, one.find('='));
    if (!one.empty())
      query[from_percents(name, true)] =
          from_percents(one.substr(std::min(one.size(), name.size() + 1)), true);
  }
  return query;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::vector<std::string> texts_of(std::string_view xml, const std::string& name) {
  const std::string begin = "<" + name + ">";
  const std::string end = "</" + name + ">";
  std::vector<std::string> texts;
  for (std::size_t at = 0; (at = xml.find(begin, at)) != std::string_view::npos;) {
    at += begin.size();
    const std::size_t stop = xml.find(end, at);
    if (stop == std::string_view::npos) throw Refusal{400, "MalformedXML"};
    texts.push_back(unescaped(std::string(xml.substr(at, stop - at))));
    at = stop + end.size();
  }
  return texts;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string sha256(std::string_view bytes) { return digest(EVP_sha256(), bytes.data(), bytes.size()); }

std::string md5(std::span<const std::byte> bytes) { return digest(EVP_md5(), bytes.data(), bytes.size()); }

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> to = {};
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), to.data(), &length);
  return {to.begin(), to.begin() + length};
}

std::string base64(std::string_view bytes) {
  std::vector<unsigned char> to(bytes.size() / 3 * 4 + 8);
  const int length = EVP_EncodeBlock(to.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  return {to.begin(), to.begin() + length};
}

std::string http_date(Clock::time_point time) { return date(time, "%a, %d %b %Y %H:%M:%S GMT"); }

std::string short_date(Clock::time_point time) { return date(time, "%Y%m%dT%H%M%SZ"); }

std::string xml_date(Clock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{}.{:03}Z", date(time, "%Y-%m-%dT%H:%M:%S"), since % 1000);
}

}  // namespace cairn::loopback
