#include "storage/s3/credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "cairn/error.h"
#include "storage/s3/digest.h"
#include "storage/s3/key_sources.h"
#include "storage/s3/per_process.h"

namespace cairn::s3 {
namespace {

constexpr auto kHoldAtLeast = std::chrono::minutes(5);
constexpr auto kBetweenTries = std::chrono::seconds(30);  // while old ones still hold

Credentials first_found(const KeyAsker& asker) {
  std::string places;
  for (const auto source :
       {environment_keys, web_identity_keys, profile_keys, container_keys, instance_keys}) {
    FoundKeys found = source(asker);
    if (found.keys) return std::move(*found.keys);
    places += fmt::format("{}{}", places.empty() ? "" : "; ", found.why_none);
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("no credentials for S3 ({}). Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                          "AWS_PROFILE, or CAIRN_S3_UNSIGNED=1 for what everybody may read",
                          places));
}

bool same_keys(const Credentials& a, const Credentials& b) {
  return a.access_key == b.access_key && a.secret_key == b.secret_key && a.session_token == b.session_token;
}

}  // namespace

struct CredentialChain::State {
  // What is known, and who is finding out more.
  struct Kept {
    std::mutex mutex = {};
    std::condition_variable renewed = {};
    std::optional<Credentials> keys = {};
    Time until = {};     // they are used, unless a server refuses them
    Time renew_at = {};  // somebody asks for new ones
    bool refused = false;
    bool renewing = false;              // some thread is at it
    std::uint64_t renewals = 0;         // that have ended
    std::optional<Error> failure = {};  // of the last one

    bool usable(Time now) const { return keys && !refused && now < until; }

    void take(Credentials found, Time now) {
      keys = std::move(found);
      refused = false;
      failure.reset();
      until = renew_at = Time::max();
      if (!keys->expires) return;
      // A clock that is wrong may say that they have ended already: a minute is between two askings all the
      // same.
      until = std::max(*keys->expires, now + std::chrono::minutes(1));
      renew_at = until - now > kHoldAtLeast ? until - kHoldAtLeast : now + (until - now) / 2;
    }
  };

  const Surroundings surroundings;
  const std::string region;
  Http& http;
  const std::function<Time()> clock;
  PerProcess<Kept> kept{[] { return std::make_unique<Kept>(); }};

  // The caller holds the lock, and does not while the source is asked.
  void renew(Kept& all, std::unique_lock<std::mutex>& lock) {
    all.renewing = true;
    lock.unlock();
    std::optional<Credentials> found;
    Error error(ErrorCode::kInternal, "no credentials were found out");
    std::exception_ptr other;
    try {
      found = first_found({surroundings, region, http});
    } catch (const Error& e) {
      error = e;
    } catch (...) {
      other = std::current_exception();
    }
    lock.lock();
    all.renewing = false;
    ++all.renewals;
    all.renewed.notify_all();
    if (found) return all.take(std::move(*found), clock());
    all.renew_at = clock() + kBetweenTries;
    all.failure = std::move(error);
    if (other) std::rethrow_exception(other);
  }
};

CredentialChain::CredentialChain(Surroundings surroundings, const Settings& settings, Http& http,
                                 std::function<Time()> clock)
    : state_(new State{.surroundings = std::move(surroundings),
                       .region = settings.region,
                       .http = http,
                       .clock = std::move(clock)}) {}

CredentialChain::~CredentialChain() = default;

Credentials CredentialChain::get() {
  State::Kept& all = state_->kept.get();
  std::unique_lock lock(all.mutex);
  const Time now = state_->clock();
  if (all.usable(now) && (all.renewing || now < all.renew_at)) return *all.keys;
  if (all.renewing) {
    all.renewed.wait(lock, [&, before = all.renewals] { return all.renewals != before; });
  } else {
    state_->renew(all, lock);
  }
  if (all.failure && !all.usable(state_->clock())) throw Error(*all.failure);
  return *all.keys;
}

void CredentialChain::renew_after(const Credentials& refused) {
  State::Kept& all = state_->kept.get();
  const std::lock_guard lock(all.mutex);
  if (all.keys && same_keys(*all.keys, refused)) all.refused = true;
}

}  // namespace cairn::s3
