// Answers of S3 in XML: what is accepted stays inside the limits, and is the same after writing and reading.
#include "fuzz.h"
#include "storage/s3/xml.h"

namespace cairn::fuzz {
namespace {

constexpr std::size_t kMostLevels = 32;

void check(const s3::XmlElement& element, std::size_t level) {
  require(level <= kMostLevels, "elements are not nested too deeply");
  require(!element.name.empty() && element.name.size() <= 256, "a name is there and not too long");
  require(element.children.empty() || element.text.empty(), "an element has text or others in it");
  for (const s3::XmlElement& child : element.children) check(child, level + 1);
}

void write(std::string& to, const s3::XmlElement& element) {
  to += "<" + element.name + ">" + s3::xml_text(element.text);
  for (const s3::XmlElement& child : element.children) write(to, child);
  to += "</" + element.name + ">";
}

}  // namespace

void run(ByteSpan input, const Limits&) {
  const s3::XmlElement document = s3::parse_xml(as_text(input));
  check(document, 1);
  std::string once, twice;
  write(once, document);
  write(twice, must("a written document reads back", [&] { return s3::parse_xml(once); }));
  require(once == twice, "a document is the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
