// Where keys come from, with loopback stand-ins for those who give them over the network.
#include "storage/s3/key_sources.h"

#include <gtest/gtest.h>

#include <future>

#include "storage/s3/digest.h"
#include "testing/canned_http.h"
#include "testing/errors.h"
#include "testing/s3_surroundings.h"

namespace cairn::s3 {
namespace {

// Every secret of these tests has "hush" in it.
constexpr const char* kMachineKeys =
    R"({"Code": "Success", "AccessKeyId": "MACHINE", "SecretAccessKey": "hush", "Token": "hush-token",
        "Expiration": "2026-01-01T12:00:00Z", "LastUpdated": 7})";
constexpr const char* kRoleKeys =
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ROLE</AccessKeyId>"
    "<SecretAccessKey>hush</SecretAccessKey><SessionToken>hush-token</SessionToken>"
    "<Expiration>2026-01-01T12:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>";

// A token service, a container and a machine in one.
CannedAnswer all_sources(const CannedRequest& request) {
  if (request.line == "POST /") return {200, kRoleKeys};
  if (request.line == "GET /container") return {200, R"({"AccessKeyId": "BOX", "SecretAccessKey": "hush"})"};
  if (request.line == "PUT /latest/api/token") return {200, "hush-session"};
  if (!request.has("x-aws-ec2-metadata-token: hush-session")) return {401, ""};
  if (request.line == "GET /latest/meta-data/iam/security-credentials/") return {200, "my role\n"};
  if (request.line == "GET /latest/meta-data/iam/security-credentials/my%20role") return {200, kMachineKeys};
  return {404, ""};
}

struct Place {
  explicit Place(CannedHttp::Answer answer = all_sources) : server(std::move(answer)) {
    fake.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url() + "/";
  }

  void with_role() {
    fake.variables.insert({{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"},
                           {"AWS_ROLE_ARN", "arn:aws:iam::1:role/r"},
                           {"AWS_ENDPOINT_URL_STS", server.url()}});
    fake.files["/token"] = "hush.jwt+/=\n";
  }
  void with_container() {
    fake.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url() + "/container";
  }
  void with_profile(const std::string& text) {
    fake.variables["AWS_CONFIG_FILE"] = "/config";
    fake.files["/config"] = text;
  }

  Credentials keys() { return CredentialChain(fake.all(), {.region = "eu-west-1"}, http).get(); }
  // Without secrets in it.
  Error error() {
    const Error e = error_of([&] { keys(); });
    EXPECT_FALSE(mentions(e, "hush")) << e.what();
    return e;
  }

  CannedHttp server;
  FakeSurroundings fake;
  Http http;
};

TEST(S3KeySources, TheFirstThatIsThereIsTaken) {
  Place place;
  place.with_role();
  place.with_container();
  place.with_profile("[default]\naws_access_key_id = FILE\naws_secret_access_key = hush\n");
  place.fake.variables["AWS_ACCESS_KEY_ID"] = "ENV";
  place.fake.variables["AWS_SECRET_ACCESS_KEY"] = "hush";
  EXPECT_EQ(place.keys().access_key, "ENV");
  EXPECT_EQ(place.server.requests().size(), 0U);
  place.fake.variables.erase("AWS_ACCESS_KEY_ID");
  place.fake.variables.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(place.keys().access_key, "ROLE");
  place.fake.variables.erase("AWS_WEB_IDENTITY_TOKEN_FILE");
  EXPECT_EQ(place.keys().access_key, "FILE");
  place.fake.files.clear();
  EXPECT_EQ(place.keys().access_key, "BOX");
  place.fake.variables.erase("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  EXPECT_EQ(place.keys().access_key, "MACHINE");
}

TEST(S3KeySources, WithoutAnyTheErrorSaysWhereWasLookedAndWhatToSet) {
  Place place;
  place.fake.variables = {{"HOME", "/me"}, {"AWS_EC2_METADATA_DISABLED", "true"}};
  const Error e = place.error();
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  for (const char* word :
       {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "'default'", "/me/.aws/credentials",
        "/me/.aws/config", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_EC2_METADATA_DISABLED",
        "CAIRN_S3_UNSIGNED"})
    EXPECT_TRUE(mentions(e, word)) << e.what();
}

TEST(S3KeySources, TheEnvironmentsKeysComeWithTheirTokenAndInPairs) {
  Place place;
  auto& variables = place.fake.variables;
  variables["AWS_ACCESS_KEY_ID"] = "ENV";
  EXPECT_TRUE(mentions(place.error(), "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"));
  variables["AWS_SECRET_ACCESS_KEY"] = "hush /+\xc3\xa9";
  variables["AWS_SESSION_TOKEN"] = "hush-token==";
  const Credentials keys = place.keys();
  EXPECT_EQ(keys.secret_key, "hush /+\xc3\xa9");
  EXPECT_EQ(keys.session_token, "hush-token==");
  EXPECT_FALSE(keys.expires);
  variables["AWS_ACCESS_KEY_ID"] = "";
  EXPECT_TRUE(mentions(place.error(), "AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not"));
}

TEST(S3KeySources, KeysThatWouldBreakAHeaderAreRefused) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"AWS_ACCESS_KEY_ID", "hush\r\nx: y"},
                                                                      {"AWS_SECRET_ACCESS_KEY", "hush\n"},
                                                                      {"AWS_SESSION_TOKEN", "hush hush"}}) {
    Place place;
    place.fake.variables.insert({{"AWS_ACCESS_KEY_ID", "K"}, {"AWS_SECRET_ACCESS_KEY", "hush"}});
    place.fake.variables[name] = value;
    const Error e = place.error();
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << name;
    EXPECT_TRUE(mentions(e, name)) << e.what();
  }
}

TEST(S3KeySources, AProfileHasKeysInPairs) {
  Place place;
  place.with_profile(
      "[default]\naws_access_key_id = K\naws_secret_access_key = hush\naws_session_token = hush-token\n");
  EXPECT_EQ(place.keys().session_token, "hush-token");
  place.with_profile("[default]\naws_secret_access_key = hush\n");
  const Error e = place.error();
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(e, "/config")) << e.what();
}

TEST(S3KeySources, WaysToGetKeysThatCairnDoesNotKnowAreNamedUnlessThereArePlainOnes) {
  for (const std::string way :
       {"credential_process", "sso_session", "sso_start_url", "login_session", "role_arn"}) {
    Place place;
    place.fake.variables["AWS_PROFILE"] = "mine";
    place.with_profile("[profile mine]\nsource_profile = x\n" + way + " = hush\n");
    const Error e = place.error();
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    for (const std::string& word :
         {way, std::string("'mine'"), std::string("aws configure export-credentials")})
      EXPECT_TRUE(mentions(e, word)) << e.what();
    place.fake.files["/config"] += "aws_access_key_id = K\naws_secret_access_key = hush\n";
    EXPECT_EQ(place.keys().access_key, "K");
  }
}

TEST(S3KeySources, ARoleIsTakenOnWithTheTokenOfTheFile) {
  Place place;
  place.with_role();
  const Credentials keys = place.keys();
  EXPECT_EQ(keys.access_key, "ROLE");
  EXPECT_EQ(keys.secret_key, "hush");
  EXPECT_EQ(keys.session_token, "hush-token");
  EXPECT_EQ(keys.expires, time_of_iso("2026-01-01T12:00:00Z"));
  const CannedRequest asked = place.server.requests().at(0);
  EXPECT_EQ(asked.line, "POST /");
  EXPECT_TRUE(asked.has("content-type: application/x-www-form-urlencoded")) << asked.head;
  EXPECT_EQ(asked.head.find("authorization"), asked.head.npos);
  EXPECT_EQ(
      asked.body,
      "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=cairn&"
      "Version=2011-06-15&WebIdentityToken=hush.jwt%2B%2F%3D");
}

TEST(S3KeySources, ARoleMayBeOfAProfileAndHaveAName) {
  Place place;
  place.with_role();
  place.fake.variables.erase("AWS_WEB_IDENTITY_TOKEN_FILE");
  place.with_profile("[default]\nrole_arn = a\nweb_identity_token_file = /token\nrole_session_name = me\n");
  EXPECT_EQ(place.keys().access_key, "ROLE");
  EXPECT_NE(place.server.requests().at(0).body.find("&RoleSessionName=me&"), std::string::npos);
}

TEST(S3KeySources, ARoleThatIsNotGivenIsAnErrorWithItsCodeAlone) {
  Place place([](const CannedRequest& request) -> CannedAnswer {
    return {400, "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>" +
                     request.body.substr(request.body.find("hush")) + "</Message></Error></ErrorResponse>"};
  });
  place.with_role();
  const Error e = place.error();
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_TRUE(mentions(e, "400 InvalidIdentityToken")) << e.what();
  EXPECT_TRUE(mentions(e, "127.0.0.1")) << e.what();
  EXPECT_EQ(place.server.requests().size(), 1U);
  place.fake.variables.erase("AWS_ROLE_ARN");
  EXPECT_TRUE(mentions(place.error(), "AWS_ROLE_ARN"));
}

TEST(S3KeySources, ATokenFileThatIsNotThereIsNamed) {
  Place place;
  place.with_role();
  place.fake.files["/token"] = "\n";
  EXPECT_TRUE(mentions(place.error(), "/token"));
  place.fake.files.clear();
  const Error e = place.error();
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(e, "/token")) << e.what();
  EXPECT_TRUE(mentions(e, "AWS_WEB_IDENTITY_TOKEN_FILE")) << e.what();
}

TEST(S3KeySources, AFailureOfTheTokenServiceIsTriedAgain) {
  Place place([tries = 0](const CannedRequest&) mutable -> CannedAnswer {
    ++tries;
    if (tries == 1) return {0, ""};
    if (tries == 2) return {503, ""};
    return {200, kRoleKeys};
  });
  place.with_role();
  EXPECT_EQ(place.keys().access_key, "ROLE");
  EXPECT_EQ(place.server.requests().size(), 3U);
}

TEST(S3KeySources, AContainerIsToldItsToken) {
  Place place;
  place.with_container();
  EXPECT_EQ(place.keys().access_key, "BOX");
  EXPECT_EQ(place.server.requests().back().head.find("authorization"), std::string::npos);
  place.fake.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Bearer hush";
  place.keys();
  EXPECT_TRUE(place.server.requests().back().has("authorization: Bearer hush"));
  place.fake.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/box-token";
  place.fake.files["/box-token"] = "hush-1\n";
  place.keys();
  EXPECT_TRUE(place.server.requests().back().has("authorization: hush-1"));
  place.fake.files["/box-token"] = "hush\r\nx: y";
  EXPECT_EQ(place.error().code(), ErrorCode::kInvalidArgument);
}

TEST(S3KeySources, AContainersAddressIsNearOrOverHttps) {
  const auto url_for = [](const std::string& name, const std::string& value) {
    return container_url(FakeSurroundings{{{name, value}}, {}}.all());
  };
  const std::string full = "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                    relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
  EXPECT_EQ(container_url(FakeSurroundings{}.all()), std::nullopt);
  EXPECT_EQ(url_for(relative, "/v2/keys?x=y"), "http://169.254.170.2/v2/keys?x=y");
  for (const char* url : {"http://127.0.0.1:80/x", "http://127.8.9.10", "http://localhost/x",
                          "http://169.254.170.2/x", "http://169.254.170.23/v1/credentials",
                          "http://[fd00:ec2::23]/v1", "http://[::1]:9/x", "https://keys.example/x"})
    EXPECT_EQ(url_for(full, url), url);
  for (const char* url :
       {"http://keys.example/hush", "http://10.0.0.1/hush", "http://127.0.0.1@evil/hush",
        "http://evil\\@127.0.0.1/hush", "http://127.0.0.1.evil/hush", "http://localhost.evil/hush",
        "http://127.1/hush", "http://[::2]/hush", "http://[::1/hush", "http://[::1", "http:///hush",
        "ftp://127.0.0.1/hush", "127.0.0.1/hush", "http://127.0.0.1/hu sh", "http://%31/hush",
        "http://169.254.169.254/hush", "x"}) {
    const Error e = error_of([&] { url_for(full, url); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << url;
    EXPECT_TRUE(mentions(e, full)) << e.what();
    EXPECT_FALSE(mentions(e, "hush")) << e.what();
  }
  for (const char* path : {"v2/hush", "@evil/hush", "/hush\n"}) {
    const Error e = error_of([&] { url_for(relative, path); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << path;
    EXPECT_FALSE(mentions(e, "hush")) << e.what();
  }
}

TEST(S3KeySources, AnAnswerThatHasNoKeysIsAnErrorWithoutWhatItSays) {
  for (const std::string text : {"", "hush", "[\"hush\"]", "{\"AccessKeyId\": \"hush\"}",
                                 R"({"AccessKeyId": 1, "SecretAccessKey": "hush"})",
                                 R"({"AccessKeyId": "a\nhush", "SecretAccessKey": "hush"})",
                                 R"({"Code": "hush 1", "Message": "hush"})",
                                 R"({"AccessKeyId": "K", "SecretAccessKey": "hush", "Expiration": "hush"})",
                                 "{\"AccessKeyId\": \"\xff hush\"}"}) {
    Place place([&](const CannedRequest&) -> CannedAnswer { return {200, text}; });
    place.with_container();
    EXPECT_EQ(place.error().code(), ErrorCode::kIo) << text;
    place.fake.variables.erase("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    place.with_role();
    EXPECT_EQ(place.error().code(), ErrorCode::kIo) << text;
  }
  Place endless([](const CannedRequest&) -> CannedAnswer { return {200, std::string(1 << 20, ' ')}; });
  endless.with_container();
  EXPECT_EQ(endless.error().code(), ErrorCode::kIo);
}

TEST(S3KeySources, AMachineIsAskedWithAToken) {
  Place place;
  const Credentials keys = place.keys();
  EXPECT_EQ(keys.session_token, "hush-token");
  EXPECT_EQ(keys.expires, time_of_iso("2026-01-01T12:00:00Z"));
  EXPECT_TRUE(place.server.requests().at(0).has("x-aws-ec2-metadata-token-ttl-seconds: 21600"));
  place.fake.variables["AWS_EC2_METADATA_DISABLED"] = "TRUE";
  EXPECT_EQ(place.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(place.server.requests().size(), 3U);
}

TEST(S3KeySources, AMachineWithoutARoleOrWithoutMetadataIsAPlaceWithoutKeys) {
  Place no_role([](const CannedRequest& request) -> CannedAnswer {
    if (request.line.starts_with("PUT ")) return {200, "hush"};
    return {404, ""};
  });
  EXPECT_TRUE(mentions(no_role.error(), "the machine has no role"));
  Place no_metadata([](const CannedRequest&) -> CannedAnswer { return {403, "hush"}; });
  EXPECT_TRUE(mentions(no_metadata.error(), "it answered 403"));
  Place broken([](const CannedRequest& request) -> CannedAnswer {
    if (request.line.starts_with("PUT ")) return {200, "hush"};
    return {500, "hush"};
  });
  EXPECT_EQ(broken.error().code(), ErrorCode::kIo);
  Place refused([](const CannedRequest& request) -> CannedAnswer {
    if (request.line.starts_with("PUT ")) return {200, "hush"};
    if (request.line.ends_with('/')) return {200, "role"};
    return {200, R"({"Code": "AssumeRoleUnauthorizedAccess", "Message": "hush"})"};
  });
  EXPECT_TRUE(mentions(refused.error(), "AssumeRoleUnauthorizedAccess"));
  Place odd([](const CannedRequest&) -> CannedAnswer { return {200, "hush\r\nx: y"}; });
  EXPECT_EQ(odd.error().code(), ErrorCode::kIo);
}

TEST(S3KeySources, AMachineThatNeverAnswersCostsTwoTriesOfASecond) {
  std::promise<void> done;
  const auto end = done.get_future().share();
  Place place([end](const CannedRequest&) -> CannedAnswer {
    end.wait();
    return {};
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(place.error().code(), ErrorCode::kInvalidArgument);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::seconds(2));
  EXPECT_LT(took, std::chrono::seconds(20));
  done.set_value();
}

TEST(S3KeySources, AddressesOfServicesThatMakeNoSenseAreNamedWithoutTheirSecrets) {
  for (const char* url : {"hush", "ftp://hush", "http://me:hush@h", "http://h hush"}) {
    Place place;
    place.fake.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = url;
    EXPECT_TRUE(mentions(place.error(), "AWS_EC2_METADATA_SERVICE_ENDPOINT"));
    place.with_role();
    place.fake.variables["AWS_ENDPOINT_URL_STS"] = url;
    EXPECT_TRUE(mentions(place.error(), "AWS_ENDPOINT_URL_STS"));
  }
}

}  // namespace
}  // namespace cairn::s3
