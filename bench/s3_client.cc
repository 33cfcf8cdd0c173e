// Saving to and loading from an S3 server. bench/parts/s3.py calls it.
//
//   s3_client move URL BYTES    a state of CPU tensors to a server that the environment names, and back, with
//                               checksums, over and over at one place: the best of three, and the most memory
//                               beyond the state
//   s3_client small COUNT       requests of a save and a load of COUNT small tensors, at a server of its own
//   s3_client ls COUNT CAIRN    requests of the command CAIRN that lists COUNT tensors
//
// Prints one JSON object; nothing without arguments.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "cairn/cairn.h"
#include "s3/cost.h"
#include "testing/s3_server.h"

namespace {

using namespace cairn;

constexpr const char* kUrl = "s3://bucket/run";

double mib_beyond(const std::function<void()>& work) {
  const std::uint64_t before = resident("VmRSS:");
  reset_peak();
  work();
  return static_cast<double>(resident("VmHWM:") - before) / (1 << 20);
}

// Whether what was loaded is what state_of() made; makes it something else for the next load.
void check_and_spoil(StateDict& state, const Tensor& wanted) {
  for (auto& [name, value] : *state.find("model")->get_if<Dict>()) {
    const std::span<std::byte> bytes = value.get_if<Tensor>()->bytes();
    if (std::memcmp(bytes.data(), wanted.bytes().data(), bytes.size()) != 0)
      throw std::runtime_error("another state was loaded than was saved");
    std::memset(bytes.data(), 0x5a, bytes.size());
  }
}

void run_move(const std::string& url, std::uint64_t bytes) {
  StateDict state = state_of(bytes);
  const double saving_mib = mib_beyond([&] { save(state, url); });
  const Cost saving = least_cost(kRepetitions, [&](int) { save(state, url); });
  const Tensor wanted = filled(kTensorBytes);
  check_and_spoil(state, wanted);
  const double loading_mib = mib_beyond([&] { load(state, url); });
  Cost loading;
  for (int i = 0; i < kRepetitions; ++i) {
    check_and_spoil(state, wanted);
    const Cost one = least_cost(1, [&](int) { load(state, url); });
    loading = {std::min(loading.seconds, one.seconds), std::min(loading.cpu, one.cpu)};
  }
  check_and_spoil(state, wanted);
  fmt::print("{{\"save\": {{{}, \"mib\": {}}}, \"load\": {{{}, \"mib\": {}}}}}\n", json_of(saving),
             saving_mib, json_of(loading), loading_mib);
}

// A server in this process, and an environment that names it.
class OwnServer {
 public:
  OwnServer() {
    setenv("AWS_ENDPOINT_URL", server_.endpoint().c_str(), 1);
    setenv("AWS_ACCESS_KEY_ID", "bench", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "bench", 1);
    setenv("AWS_REGION", "us-east-1", 1);
  }
  // As JSON: how many, and "3 GetObject, 1 PutObject".
  std::string requests_of(const std::function<void()>& work) {
    server_.forget_requests();
    work();
    std::string kinds;
    for (const auto& [kind, count] : server_.requests_by_kind())
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
    return fmt::format("{{\"requests\": {}, \"kinds\": \"{}\"}}", server_.requests(), kinds);
  }
  std::size_t data_objects() const {
    const std::vector<std::string> keys = server_.keys();
    return static_cast<std::size_t>(std::count_if(
        keys.begin(), keys.end(), [](const std::string& key) { return key.ends_with(".distcp"); }));
  }

 private:
  S3Server server_;
};

StateDict many_tensors(int count, std::int64_t bytes) {
  Dict model;
  for (int i = 0; i < count; ++i) model.set(fmt::format("w{}", i), Value(filled(bytes)));
  StateDict state;
  state.set("model", Value(std::move(model)));
  return state;
}

void run_small(int count) {
  OwnServer server;
  StateDict state = many_tensors(count, 4096);
  const std::string saving = server.requests_of([&] { save(state, kUrl); });
  const std::string again = server.requests_of([&] { save(state, kUrl); });
  const std::string loading = server.requests_of([&] { load(state, kUrl); });
  fmt::print("{{\"save\": {}, \"save_again\": {}, \"load\": {}, \"objects\": {}}}\n", saving, again, loading,
             server.data_objects());
}

void run_ls(int count, const std::string& command) {
  OwnServer server;
  save(many_tensors(count, 64), kUrl);
  const std::string listing = server.requests_of([&] {
    if (std::system(("'" + command + "' ls " + kUrl + " >/dev/null").c_str()) != 0)
      throw std::runtime_error(command + " failed");
  });
  fmt::print("{}\n", listing);
}

int run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "move")
    run_move(args[1], std::stoull(args[2]));
  else if (args.size() == 2 && args[0] == "small")
    run_small(std::stoi(args[1]));
  else if (args.size() == 3 && args[0] == "ls")
    run_ls(std::stoi(args[1]), args[2]);
  else
    return 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return 0;
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "s3_client: {}\n", e.what());
    return 1;
  }
}
