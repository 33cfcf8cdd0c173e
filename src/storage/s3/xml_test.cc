#include "storage/s3/xml.h"

#include <gtest/gtest.h>

#include <ctime>

#include "testing/errors.h"

namespace cairn::s3 {
namespace {

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string nested(std::size_t levels) { return repeated("<a>", levels) + repeated("</a>", levels); }

TEST(S3Xml, AListingIsReadWithItsNamesAndTexts) {
  const XmlElement list = parse_xml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<!-- a remark -->"
      "<s3:ListBucketResult xmlns:s3='http://s3.amazonaws.com/doc/2006-03-01/' a = \"1>2\">\n"
      "  <Contents><Key>run/a &amp; b</Key><Size>7</Size></Contents>\n"
      "  <Contents ><Key>gr\xc3\xbcn</Key ><Prefix/></Contents>\n"
      "  <IsTruncated>false</IsTruncated>\n"
      "</s3:ListBucketResult>\n");
  EXPECT_EQ(list.name, "ListBucketResult");
  EXPECT_EQ(list.text, "");
  ASSERT_EQ(list.children.size(), 3U);
  EXPECT_EQ(list.children[0].text_of("Key"), "run/a & b");
  EXPECT_EQ(list.children[1].text_of("Key"), "gr\xc3\xbcn");
  EXPECT_NE(list.children[1].child("Prefix"), nullptr);
  EXPECT_EQ(list.children[1].text_of("Prefix"), "");
  EXPECT_EQ(list.child("Contents"), &list.children[0]);
  EXPECT_EQ(list.child("Key"), nullptr);
  EXPECT_EQ(list.text_of("Nothing"), "");
  EXPECT_EQ(list.text_of("IsTruncated"), "false");
}

TEST(S3Xml, TextKeepsItsSpacesAndEntitiesAndCdataAreResolved) {
  EXPECT_EQ(parse_xml("<a> x\n </a>").text, " x\n ");
  EXPECT_EQ(parse_xml("<a>&lt;&gt;&amp;&quot;&apos;&#13;&#x41;&#xe9;&#x20AC;&#x1F600;</a>").text,
            "<>&\"'\rA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(parse_xml("<a>1<![CDATA[<b>&amp;]]]]>2<!-- no --><?no?>3</a>").text, "1<b>&amp;]]23");
  EXPECT_EQ(parse_xml("\xef\xbb\xbf<a>&amp;amp;</a>").text, "&amp;");
}

TEST(S3Xml, WhatIsWrittenReadsBack) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(parse_xml("<a>" + xml_text(all) + "</a>").text, all);
  EXPECT_EQ(xml_text("a < b & \"c\"\n"), "a &lt; b &amp; &quot;c&quot;&#10;");
}

TEST(S3Xml, WhatIsNoDocumentIsCorruptAtItsByte) {
  for (const char* text : {"",
                           "  ",
                           "x",
                           "<a>",
                           "<a",
                           "<a></b>",
                           "</a>",
                           "<a/><b/>",
                           "<a/>x",
                           "x<a/>",
                           "<>",
                           "<a:/>",
                           "<a></a",
                           "<a b></a>",
                           "<a b=c/>",
                           "<a b='c/>",
                           "<a b='<'/>",
                           "<a b='1'c='2'/>",
                           "<a =''/>",
                           "<a>&</a>",
                           "<a>&amp</a>",
                           "<a>&no;</a>",
                           "<a>&;</a>",
                           "<a>&#;</a>",
                           "<a>&#x;</a>",
                           "<a>&#0;</a>",
                           "<a>&#xD800;</a>",
                           "<a>&#x110000;</a>",
                           "<a>&#99999999999;</a>",
                           "<a>&#-1;</a>",
                           "<a>&#1 ;</a>",
                           "<a>&x41;</a>",
                           "<![CDATA[x]]><a/>",
                           "<a><![CDATA[x]]</a>",
                           "<a><!-- </a>",
                           "<?xml <a/>",
                           "<s:a></a>",
                           "{\"json\": 1}"}) {
    const Error e = error_of([&] { parse_xml(text); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << text;
    EXPECT_TRUE(e.offset()) << text;
  }
  EXPECT_EQ(error_of([] { parse_xml("<a><b></c></a>"); }).offset(), 9U);
}

TEST(S3Xml, ADoctypeIsRefusedBeforeItsEntitiesAre) {
  const Error e =
      error_of([] { parse_xml("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>"); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "DOCTYPE"));
}

TEST(S3Xml, LevelsElementsAndNamesAreBounded) {
  EXPECT_EQ(parse_xml(nested(32)).name, "a");
  EXPECT_EQ(code_of([] { parse_xml(nested(33)); }), ErrorCode::kLimit);
  EXPECT_EQ(parse_xml("<a>" + repeated("<b/>", 99'999) + "</a>").children.size(), 99'999U);
  EXPECT_EQ(code_of([] { parse_xml("<a>" + repeated("<b/>", 100'000) + "</a>"); }), ErrorCode::kLimit);
  const std::string name(256, 'n');
  EXPECT_EQ(parse_xml("<" + name + "/>").name, name);
  EXPECT_EQ(code_of([&] { parse_xml("<" + name + "n/>"); }), ErrorCode::kLimit);
}

// Each of these would take much longer if any of it were looked at again and again.
TEST(S3Xml, HostileTextIsReadInTimeThatGrowsWithItsLength) {
  constexpr std::size_t kTimes = 1 << 18;
  const std::clock_t begin = std::clock();
  for (const std::string& text :
       {"<a>" + repeated("&amp;", kTimes) + "</a>", "<a>" + repeated("<!---->", kTimes) + "</a>",
        "<a>" + repeated("<![CDATA[]]>", kTimes) + "</a>", "<a " + repeated("b='' ", kTimes) + "/>",
        repeated("<?a?>", kTimes) + "<a/>"})
    EXPECT_EQ(parse_xml(text).name, "a");
  for (const std::string& text : {repeated("<!--", kTimes), repeated("<a>", kTimes), repeated("&", kTimes),
                                  "<a>" + repeated("&#0000", kTimes), "<a b='" + repeated("c", kTimes)})
    EXPECT_NE(code_of([&] { parse_xml(text); }), ErrorCode::kInternal);
  EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace cairn::s3
