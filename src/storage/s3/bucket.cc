#include "storage/s3/bucket.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "storage/s3/objects.h"

namespace cairn::s3 {
namespace {

constexpr std::size_t kMostKept = 16;

// Two writes of one key, of which the second has to fail. True also where nobody may write at all.
bool refuses_a_second(Client& client, const std::string& key) {
  int status = 0;
  const auto write = [&] {
    Call call{.method = "PUT",
              .key = key,
              .headers = {{"if-none-match", "*"}},
              .expected = {400, 403, 405, 409, 412, 501}};
    client.call(call);
    status = call.status;
    return call.status / 100 == 2 || (call.status == 412 && call.sent_before);
  };
  const auto is_refusal = [&] { return status == 412 || status == 409; };
  // Refused the first time: what stands between us and the server delivered it twice.
  if (!write() && !is_refusal()) return status == 403 || status == 405;
  const bool refused = is_refusal() || !write();
  remove(client, {key});
  return refused && is_refusal();
}

}  // namespace

struct Bucket::Known {
  std::mutex mutex;
  std::set<std::string> locks;
  std::optional<bool> keeps_apart;
};

Bucket::Bucket(std::string name, ClientOptions options, Surroundings surroundings)
    : client_(std::move(name), std::move(options), std::move(surroundings)),
      known_([] { return std::make_unique<Known>(); }) {}

Bucket::~Bucket() = default;

bool Bucket::keeps_apart(const std::string& prefix) {
  Known& known = known_.get();
  const std::lock_guard lock(known.mutex);
  if (!known.keeps_apart)
    known.keeps_apart = refuses_a_second(client_, prefix + ".cairn-probe." + random_token());
  return *known.keeps_apart;
}

bool Bucket::take(const std::string& lock) {
  Known& known = known_.get();
  const std::lock_guard guard(known.mutex);
  return known.locks.insert(lock).second;
}

void Bucket::give_back(const std::string& lock) {
  Known& known = known_.get();
  const std::lock_guard guard(known.mutex);
  known.locks.erase(lock);
}

namespace {

// Kept as long as the process: its connections, and what was found out about the store.
std::shared_ptr<Bucket> kept(const std::string& place, const std::function<std::shared_ptr<Bucket>()>& make) {
  static std::mutex mutex;
  static auto& buckets = *new std::map<std::string, std::shared_ptr<Bucket>>;
  const std::lock_guard lock(mutex);
  if (const auto known = buckets.find(place); known != buckets.end()) return known->second;
  if (buckets.size() > kMostKept)
    std::erase_if(buckets, [](const auto& entry) { return entry.second.use_count() == 1; });
  return buckets[place] = make();
}

}  // namespace

std::shared_ptr<Bucket> bucket_named(const std::string& name) {
  const Surroundings surroundings = of_this_process();
  ClientOptions options{.settings = settings_of(surroundings)};
  const Settings& said = options.settings;
  std::string who;
  for (const char* variable :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"})
    who += surroundings.variable(variable).value_or("") + "\n";
  const std::string place = fmt::format("{}\n{}\n{}\n{}{}{}{}\n{}\n{:016x}", name, said.endpoint, said.region,
                                        said.path_style, said.unsigned_requests, said.requester_pays,
                                        said.content_md5, said.ca_bundle, xxh3_64(as_bytes(who)));
  return kept(place, [&] { return std::make_shared<Bucket>(name, std::move(options), surroundings); });
}

std::shared_ptr<Bucket> web_server(const std::string& endpoint) {
  const Surroundings surroundings = of_this_process();
  Settings settings{
      .endpoint = endpoint, .own_endpoint = true, .path_style = true, .unsigned_requests = true};
  settings.ca_bundle = said(surroundings, "AWS_CA_BUNDLE").value_or("");
  return kept(endpoint + "\n" + settings.ca_bundle, [&] {
    return std::make_shared<Bucket>("", ClientOptions{.settings = settings}, surroundings);
  });
}

}  // namespace cairn::s3
