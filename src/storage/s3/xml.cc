#include "storage/s3/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

constexpr std::size_t kMostLevels = 32;
constexpr std::size_t kMostElements = 100'000;
constexpr std::size_t kMostNameBytes = 256;

constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
    {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};

bool is_xml_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

void append_utf8(std::string& to, std::uint32_t character) {
  const auto more = [&](unsigned shift) { to += static_cast<char>(0x80U | (character >> shift & 0x3FU)); };
  if (character < 0x80) {
    to += static_cast<char>(character);
  } else if (character < 0x800) {
    to += static_cast<char>(0xC0U | character >> 6U);
    more(0);
  } else if (character < 0x10000) {
    to += static_cast<char>(0xE0U | character >> 12U);
    more(6), more(0);
  } else {
    to += static_cast<char>(0xF0U | character >> 18U);
    more(12), more(6), more(0);
  }
}

// Goes over the text once, with the elements that are open on a stack of its own.
class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  XmlElement document() {
    skip("\xef\xbb\xbf");
    while (at_ < text_.size()) {
      if (text_[at_] == '<')
        markup();
      else if (!open_.empty())
        characters();
      else if (is_xml_space(text_[at_]))
        ++at_;
      else
        fail("text outside of the document's element");
    }
    if (!done_) fail("the document ends before its element does");
    return std::move(root_);
  }

 private:
  struct Open {
    std::string_view full_name;  // with its prefix
    XmlElement element;
  };

  void markup() {
    if (skip("<?")) return skip_past("?>");
    if (skip("<!--")) return skip_past("-->");
    if (skip("<![CDATA[")) return cdata();
    if (skip("<!")) fail("a DOCTYPE, or another declaration that S3 has no use for");
    if (skip("</")) return end_tag();
    ++at_;
    start_tag();
  }

  void start_tag() {
    if (done_ && open_.empty()) fail("a second element after the document's");
    if (++elements_ > kMostElements) refuse(fmt::format("more than {} elements", kMostElements));
    if (open_.size() >= kMostLevels) refuse(fmt::format("more than {} levels of elements", kMostLevels));
    const std::string_view full = name();
    const std::string_view local = full.substr(full.rfind(':') + 1);
    if (local.empty()) fail("an element without a name");
    open_.push_back({full, {std::string(local), {}, {}}});
    while (true) {
      const bool space = skip_spaces();
      if (skip(">")) return;
      if (skip("/>")) return close();
      if (!space) fail("no space before an attribute");
      attribute();
    }
  }

  void attribute() {
    name();
    skip_spaces();
    need("=");
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '"' && quote != '\'') fail("an attribute's value without quotes");
    ++at_;
    const std::size_t begin = at_;
    skip_past(std::string_view(&quote, 1));
    if (text_.substr(begin, at_ - begin).find('<') != text_.npos) fail("'<' in an attribute");
  }

  void end_tag() {
    const std::string_view full = name();
    if (open_.empty() || open_.back().full_name != full) fail("the end of an element that is not open");
    skip_spaces();
    need(">");
    close();
  }

  void close() {
    XmlElement element = std::move(open_.back().element);
    open_.pop_back();
    if (!element.children.empty()) element.text.clear();  // the space between them
    if (open_.empty()) {
      root_ = std::move(element);
      done_ = true;
    } else {
      open_.back().element.children.push_back(std::move(element));
    }
  }

  void characters() {
    std::string& to = open_.back().element.text;
    const std::size_t end = std::min(text_.find_first_of("<&", at_), text_.size());
    to += text_.substr(at_, end - at_);
    at_ = end;
    if (skip("&")) entity(to);
  }

  void cdata() {
    if (open_.empty()) fail("text outside of the document's element");
    const std::size_t begin = at_;
    skip_past("]]>");
    open_.back().element.text += text_.substr(begin, at_ - 3 - begin);
  }

  void entity(std::string& to) {
    constexpr std::size_t kLongest = 12;  // of "#x10FFFF", with a few zeros
    const std::size_t length = text_.substr(at_, kLongest).find(';');
    if (length == text_.npos) fail("'&' that begins no entity");
    const std::string_view entity_name = text_.substr(at_, length);
    const auto* known = std::find_if(kEntities.begin(), kEntities.end(),
                                     [&](const auto& one) { return one.first == entity_name; });
    if (known != kEntities.end())
      to += known->second;
    else
      append_utf8(to, numbered(entity_name));
    at_ += length + 1;
  }

  // "#38" and "#x26".
  std::uint32_t numbered(std::string_view entity_name) {
    std::uint32_t number = 0;
    const bool hexadecimal = entity_name.starts_with("#x");
    std::string_view digits = entity_name;
    digits.remove_prefix(std::min<std::size_t>(hexadecimal ? 2 : 1, digits.size()));
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, number, hexadecimal ? 16 : 10);
    const bool surrogate = number >= 0xD800 && number < 0xE000;
    if (!entity_name.starts_with('#') || read.ec != std::errc() || read.ptr != end || number == 0 ||
        surrogate || number > 0x10FFFF)
      fail("an entity that S3 has no use for");
    return number;
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && !is_xml_space(text_[at_]) &&
           std::string_view("<>/=&\"'!?").find(text_[at_]) == text_.npos)
      if (++at_ - begin > kMostNameBytes) refuse(fmt::format("a name of more than {} bytes", kMostNameBytes));
    if (at_ == begin) fail("a name is missing");
    return text_.substr(begin, at_ - begin);
  }

  bool skip(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  bool skip_spaces() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_xml_space(text_[at_])) ++at_;
    return at_ > begin;
  }
  void skip_past(std::string_view end) {
    const std::size_t found = text_.find(end, at_);
    if (found == text_.npos) fail(fmt::format("no {} before the document's end", end));
    at_ = found + end.size();
  }
  void need(std::string_view what) {
    if (!skip(what)) fail(fmt::format("{} is missing", what));
  }

  [[noreturn]] void fail(std::string_view what) const { stop(ErrorCode::kCorrupt, what); }
  [[noreturn]] void refuse(std::string_view what) const { stop(ErrorCode::kLimit, what); }
  [[noreturn]] void stop(ErrorCode code, std::string_view what) const {
    throw Error(code, fmt::format("an answer in XML: {}", what)).at(at_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;
  std::vector<Open> open_;
  XmlElement root_;
  bool done_ = false;
};

}  // namespace

const XmlElement* XmlElement::child(std::string_view wanted) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const XmlElement& one) { return one.name == wanted; });
  return found == children.end() ? nullptr : &*found;
}

std::string_view XmlElement::text_of(std::string_view wanted) const {
  const XmlElement* found = child(wanted);
  return found == nullptr ? std::string_view() : std::string_view(found->text);
}

XmlElement parse_xml(std::string_view text) { return XmlReader(text).document(); }

std::string xml_text(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const auto* known =
        std::find_if(kEntities.begin(), kEntities.end(), [&](const auto& one) { return one.second == c; });
    if (known != kEntities.end())
      escaped += fmt::format("&{};", known->first);
    else if (static_cast<unsigned char>(c) < ' ')  // as they are, readers change them or drop them
      escaped += fmt::format("&#{};", static_cast<int>(c));
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace cairn::s3
