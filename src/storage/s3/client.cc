#include "storage/s3/client.h"

#include "storage/s3/client_state.h"

namespace cairn::s3 {

struct Client::State : ClientState {
  using ClientState::ClientState;
};

std::string_view Call::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : answer_headers)
    if (name == lower_case_name) return value;
  return {};
}

Client::Client(std::string bucket, ClientOptions options, Surroundings surroundings)
    : state_(std::make_unique<State>(std::move(bucket), std::move(options), std::move(surroundings))) {}

Client::~Client() = default;

void Client::call(Call& call) { call_all(std::span(&call, 1)); }

void Client::call_all(std::span<Call> calls) { run_calls(*state_, calls); }

const std::string& Client::bucket() const { return state_->bucket; }

const Settings& Client::settings() const { return state_->options.settings; }

std::string Client::shown(std::string_view key) const { return state_->shown(key); }

std::chrono::system_clock::time_point Client::server_time() const {
  return std::chrono::system_clock::now() + state_->server_ahead.load();
}

std::uint64_t Client::requests() const { return state_->requests.load(); }

}  // namespace cairn::s3
