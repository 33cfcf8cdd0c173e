// The little XML that S3 answers with: elements with text, no attributes that matter, no entities but the
// five and characters by their numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cairn::s3 {

struct XmlElement {
  std::string name;  // without a prefix of a namespace
  std::string text;  // of an element that has no others in it; entities resolved
  std::vector<XmlElement> children;

  // The first child of that name; nullptr when there is none.
  const XmlElement* child(std::string_view name) const;
  // Its text; empty when there is none.
  std::string_view text_of(std::string_view name) const;
};

// The one element of a document. Error(kCorrupt), with the byte, for anything else; at most 32 levels,
// 100,000 elements and names of 256 bytes (Error(kLimit)). DOCTYPE is refused.
XmlElement parse_xml(std::string_view text);

// "a < b" -> "a &lt; b", for the documents that we send.
std::string xml_text(std::string_view text);

}  // namespace cairn::s3
