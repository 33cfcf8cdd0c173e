// Signs requests for test_signer.py: one as a line of JSON on standard input, what would be sent as a line of
// JSON on standard output.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "storage/s3/sign.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = nlohmann::json::parse(line);
    const cairn::s3::Query query = asked["query"];
    const cairn::s3::Headers headers = asked["headers"];
    const std::string method = asked["method"];
    const std::string path = cairn::s3::percent_encoded(asked["path"].get<std::string>(), true);
    const std::string payload = asked["payload"];
    const std::chrono::system_clock::time_point now{std::chrono::seconds(asked["time"].get<std::int64_t>())};
    const cairn::s3::Headers added = cairn::s3::signature_headers(
        {.method = method, .path = path, .query = query, .headers = headers, .payload = payload},
        {asked["access_key"], asked["secret_key"], asked["session_token"], {}},
        asked["region"].get<std::string>(), now);
    std::cout << nlohmann::json{{"path", path}, {"query", cairn::s3::query_string(query)}, {"headers", added}}
              << '\n';
  }
}
