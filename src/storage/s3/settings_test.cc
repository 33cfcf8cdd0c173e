#include "storage/s3/settings.h"

#include <gtest/gtest.h>

#include "storage/s3/profiles.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/s3_surroundings.h"

namespace cairn::s3 {
namespace {

using Texts = std::map<std::string, std::string>;

Settings settings_with(const Texts& variables, const Texts& files = {}) {
  return settings_of(FakeSurroundings{variables, files}.all());
}

Profile profile_with(const Texts& variables, const Texts& files) {
  return profile_in_use(FakeSurroundings{variables, files}.all());
}

const Texts kHome = {{"HOME", "/me"}};
constexpr const char* kConfig = "/me/.aws/config";
constexpr const char* kKeys = "/me/.aws/credentials";

TEST(S3Settings, WithoutAnythingTheyAreThoseOfAws) {
  const Settings settings = settings_with({});
  EXPECT_EQ(settings.endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(settings.region, "");
  EXPECT_EQ(settings.ca_bundle, "");
  EXPECT_FALSE(settings.own_endpoint || settings.path_style || settings.unsigned_requests ||
               settings.requester_pays || settings.content_md5);
}

TEST(S3Settings, TheRegionIsThatOfAwsRegionThenTheDefaultRegionThenTheProfile) {
  Texts variables = kHome;
  const Texts files = {{kConfig, "[default]\nregion = eu-central-1\n"}};
  EXPECT_EQ(settings_with(variables, files).region, "eu-central-1");
  variables["AWS_DEFAULT_REGION"] = "eu-west-2";
  EXPECT_EQ(settings_with(variables, files).region, "eu-west-2");
  variables["AWS_REGION"] = "cn-north-1";
  EXPECT_EQ(settings_with(variables, files).region, "cn-north-1");
  EXPECT_EQ(settings_with(variables, files).endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
  variables["AWS_REGION"] = "";  // as if it were not there
  EXPECT_EQ(settings_with(variables, files).endpoint, "https://s3.eu-west-2.amazonaws.com");
}

TEST(S3Settings, TheEndpointIsThatOfS3ThenOfAllServicesThenOfTheProfile) {
  Texts variables = kHome;
  const Texts files = {{kConfig,
                        "[default]\nendpoint_url = http://d\nservices = mine\n"
                        "[services mine]\ns3 =\n  endpoint_url = http://c:1/\n"}};
  EXPECT_EQ(settings_with(variables, files).endpoint, "http://c:1");
  variables["AWS_ENDPOINT_URL"] = "https://b/";
  EXPECT_EQ(settings_with(variables, files).endpoint, "https://b");
  variables["AWS_ENDPOINT_URL_S3"] = "http://[::1]:9000";
  EXPECT_EQ(settings_with(variables, files).endpoint, "http://[::1]:9000");
  EXPECT_TRUE(settings_with(variables, files).own_endpoint);
  EXPECT_EQ(settings_with(kHome, {{kConfig, "[default]\nendpoint_url=http://d\n"}}).endpoint, "http://d");
}

TEST(S3Settings, AnEndpointMayHaveAPath) {
  EXPECT_EQ(settings_with({{"AWS_ENDPOINT_URL", "https://h:1/storage/v1/s3//"}}).endpoint,
            "https://h:1/storage/v1/s3");
}

TEST(S3Settings, AnOwnEndpointHasTheBucketInThePathUnlessOneSaysOtherwise) {
  Texts variables = {{"HOME", "/me"}, {"AWS_ENDPOINT_URL", "http://localhost:9000"}};
  const Texts is_virtual = {{kConfig, "[default]\ns3 =\n  addressing_style = virtual\n"}};
  const Texts is_path = {{kConfig, "[default]\ns3 =\n  addressing_style = path\n"}};
  EXPECT_TRUE(settings_with(variables).path_style);
  EXPECT_FALSE(settings_with(variables, is_virtual).path_style);
  EXPECT_TRUE(settings_with(kHome, is_path).path_style);
  EXPECT_FALSE(settings_with(kHome, {{kConfig, "[default]\ns3 =\n  addressing_style = auto\n"}}).path_style);
  variables["CAIRN_S3_PATH_STYLE"] = "0";
  EXPECT_FALSE(settings_with(variables, is_path).path_style);
  EXPECT_TRUE(settings_with({{"CAIRN_S3_PATH_STYLE", "1"}}).path_style);
  const Error e = error_of([] {
    settings_with(kHome, {{kConfig, "[default]\ns3 =\n  addressing_style = both\n"}});
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(e, "addressing_style"));
}

TEST(S3Settings, SwitchesAreZeroOrOne) {
  const Settings settings = settings_with(
      {{"CAIRN_S3_UNSIGNED", "1"}, {"CAIRN_S3_REQUESTER_PAYS", "1"}, {"CAIRN_S3_CONTENT_MD5", "1"}});
  EXPECT_TRUE(settings.unsigned_requests && settings.requester_pays && settings.content_md5);
  EXPECT_FALSE(settings_with({{"CAIRN_S3_UNSIGNED", "0"}}).unsigned_requests);
  for (const char* name :
       {"CAIRN_S3_UNSIGNED", "CAIRN_S3_REQUESTER_PAYS", "CAIRN_S3_CONTENT_MD5", "CAIRN_S3_PATH_STYLE"}) {
    const Error e = error_of([&] { settings_with({{name, "yes"}}); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(mentions(e, name)) << e.what();
  }
}

TEST(S3Settings, TheCaBundleIsThatOfTheVariableThenOfTheProfile) {
  Texts variables = kHome;
  const Texts files = {{kConfig, "[default]\nca_bundle = /etc/profile.pem\n"}};
  EXPECT_EQ(settings_with(variables, files).ca_bundle, "/etc/profile.pem");
  variables["AWS_CA_BUNDLE"] = "/etc/variable.pem";
  EXPECT_EQ(settings_with(variables, files).ca_bundle, "/etc/variable.pem");
}

TEST(S3Settings, AnEndpointOrRegionThatMakesNoSenseNamesItsVariableButNotItsSecrets) {
  for (const char* url :
       {"localhost:9000", "ftp://h", "http://", "https:///", "http://me:hush@h", "http://h/a b", "http:////x",
        "http://h/%41", "http://h?x", "http://h#x", "http://h h", "http://h\nx", "http://h\\x", "x"}) {
    const Error e = error_of([&] { settings_with({{"AWS_ENDPOINT_URL_S3", url}}); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << url;
    EXPECT_TRUE(mentions(e, "AWS_ENDPOINT_URL_S3")) << e.what();
    EXPECT_FALSE(mentions(e, "hush")) << e.what();
  }
  for (const char* region : {"eu west", "eu-west-1/", "evil.example", "a\r\nb"}) {
    const Error e = error_of([&] { settings_with({{"AWS_REGION", region}}); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << region;
    EXPECT_TRUE(mentions(e, "AWS_REGION")) << e.what();
  }
}

TEST(S3Profiles, TheFileIsReadAsAwsWritesIt) {
  const auto sections = parse_profiles(
      "\xef\xbb\xbf# a remark\r\n"
      "; another\n"
      "[default]\r\n"
      "Region = eu-west-1\r\n"
      "output=json   # said so\n"
      "secret = a=b#c;d \n"
      "s3 =\n"
      "  max_bandwidth = 1MB/s\n"
      "\n"
      "  Addressing_Style = path\n"
      "after = x\n"
      "  goes = on\n"
      "[profile  \"my own\"] # here\n"
      "    region = r1\n"
      "    output = text\n"
      "[ profile plain ]\n"
      "empty =\n"
      "[default]\n"
      "more = 1\n"
      "region = eu-west-3",
      "f");
  ASSERT_EQ(sections.size(), 3U);
  EXPECT_EQ(sections.at("default"), (Profile{{"region", "eu-west-3"},
                                             {"output", "json"},
                                             {"secret", "a=b#c;d"},
                                             {"s3", ""},
                                             {"s3.max_bandwidth", "1MB/s"},
                                             {"s3.addressing_style", "path"},
                                             {"after", "x"},
                                             {"more", "1"}}));
  EXPECT_EQ(sections.at("profile my own"), (Profile{{"region", "r1"}, {"output", "text"}}));
  EXPECT_EQ(sections.at("profile plain"), (Profile{{"empty", ""}}));
  EXPECT_TRUE(parse_profiles("", "f").empty());
}

TEST(S3Profiles, ABrokenFileIsAnErrorWithItsLineAndNothingOfWhatItSays) {
  for (const char* text : {"\nhush = hush", "[a\nhush", "[a]\nhush", "[a]\n= hush", "[a]\nb =\n  hush\n"}) {
    const Error e = error_of([&] { parse_profiles(text, "/the/file"); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_TRUE(mentions(e, "/the/file")) << e.what();
    EXPECT_TRUE(mentions(e, "line ")) << e.what();
    EXPECT_FALSE(mentions(e, "hush")) << e.what();
  }
}

TEST(S3Profiles, TheCredentialsFileGoesOverTheConfigFileAndItsKeysAreTakenWhole) {
  const Profile profile = profile_with(
      kHome,
      {{kConfig,
        "[default]\nregion=r\naws_access_key_id=OLD\naws_secret_access_key=old\naws_session_token=t\n"},
       {kKeys, "[default]\naws_access_key_id=NEW\naws_secret_access_key=new\n"}});
  EXPECT_EQ(profile,
            (Profile{{"region", "r"}, {"aws_access_key_id", "NEW"}, {"aws_secret_access_key", "new"}}));
}

TEST(S3Profiles, TheProfileAndTheFilesAreThoseThatTheVariablesName) {
  const Texts files = {
      {"/c", "[profile a]\nregion=ra\n[a]\nregion=wrong\n[default]\nregion=d\n[profile default]\nx=y\n"},
      {"/me/k", "[a]\naws_access_key_id=A\n[profile a]\naws_access_key_id=wrong\n"}};
  Texts variables = {{"HOME", "/me"}, {"AWS_CONFIG_FILE", "/c"}, {"AWS_SHARED_CREDENTIALS_FILE", "~/k"}};
  EXPECT_EQ(profile_with(variables, files), (Profile{{"x", "y"}}));
  variables["AWS_PROFILE"] = "a";
  EXPECT_EQ(profile_with(variables, files), (Profile{{"region", "ra"}, {"aws_access_key_id", "A"}}));
  variables["AWS_PROFILE"] = "b";
  const Error e = error_of([&] { profile_with(variables, files); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  for (const char* word : {"AWS_PROFILE", "'b'", "/c", "/me/k"}) EXPECT_TRUE(mentions(e, word)) << e.what();
}

TEST(S3Profiles, WithoutAHomeOrFilesThereIsNone) {
  EXPECT_TRUE(profile_with({}, {{"/.aws/config", "[default]\na=b\n"}}).empty());
  EXPECT_TRUE(profile_with(kHome, {}).empty());
}

TEST(S3Surroundings, ThoseOfThisProcessReadFilesUpToAMebibyte) {
  const TestFolder folder;
  const Surroundings here = of_this_process();
  EXPECT_EQ(here.file(folder.write("a", "text")), "text");
  EXPECT_EQ(here.file(folder / "b"), std::nullopt);
  EXPECT_EQ(here.file("/dev/null"), "");
  EXPECT_EQ(here.file(folder.write("large", std::string(1 << 20, 'x')))->size(), 1U << 20);
  EXPECT_EQ(code_of([&] { here.file(folder.write("larger", std::string((1 << 20) + 1, 'x'))); }),
            ErrorCode::kLimit);
  EXPECT_EQ(code_of([&] { here.file(folder.path()); }), ErrorCode::kIo);
  EXPECT_TRUE(said(here, "PATH"));
  EXPECT_FALSE(said(here, "CAIRN_S3_A_VARIABLE_THAT_NOBODY_SETS"));
}

}  // namespace
}  // namespace cairn::s3
