#include "storage/s3/http.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "cairn/error.h"
#include "storage/s3/libraries.h"
#include "storage/s3/per_process.h"
#include "storage/s3/transfer.h"

namespace cairn::s3 {
namespace {

using HttpClock = std::chrono::steady_clock;

constexpr long kMostIdleConnections = 64;  // of one thread
constexpr std::size_t kMostIdleEasies = 64;

}  // namespace

// Handles that nobody uses at the moment. Connections, names that were looked up and TLS sessions are a multi
// handle's.
class HandlePool {
 public:
  HandlePool() = default;
  HandlePool(const HandlePool&) = delete;
  HandlePool& operator=(const HandlePool&) = delete;
  ~HandlePool() {
    for (CURL* easy : easies_) curl().easy_cleanup(easy);
    for (CURLM* multi : multis_) curl().multi_cleanup(multi);
  }

  CURLM* multi() {
    const std::lock_guard lock(mutex_);
    if (!multis_.empty()) return taken(multis_);
    CURLM* const multi = curl().multi_init();
    if (multi == nullptr) throw Error(ErrorCode::kInternal, "libcurl gives no handle");
    curl().multi_setopt(multi, CURLMOPT_MAXCONNECTS, kMostIdleConnections);
    return multi;
  }
  CURL* easy(const HttpOptions& options) {
    const std::lock_guard lock(mutex_);
    return easies_.empty() ? new_easy(options) : taken(easies_);
  }
  void give_back_multi(CURLM* multi) {
    const std::lock_guard lock(mutex_);
    multis_.push_back(multi);
  }
  void give_back_easy(CURL* easy) {
    const std::lock_guard lock(mutex_);
    if (easies_.size() < kMostIdleEasies) return easies_.push_back(easy);
    curl().easy_cleanup(easy);
  }

 private:
  // The one that was given back last: its connections are the freshest.
  template <class Handle> static Handle* taken(std::vector<Handle*>& handles) {
    Handle* const handle = handles.back();
    handles.pop_back();
    return handle;
  }

  std::mutex mutex_;
  std::vector<CURLM*> multis_;
  std::vector<CURL*> easies_;
};

std::string_view Exchange::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : answer_headers)
    if (name == lower_case_name) return value;
  return {};
}

struct Http::State {
  explicit State(const HttpOptions& its_options) : options(its_options) {}

  const HttpOptions options;
  PerProcess<HandlePool> pool{[] { return std::make_unique<HandlePool>(); }};
};

Http::Http(const HttpOptions& options) {
  (void)curl(), (void)crypto();  // whoever has none of them hears it at once
  state_ = std::make_unique<State>(options);
}

Http::~Http() = default;

struct Transfers::State {
  const HttpOptions& options;
  HandlePool& pool;
  CURLM* multi = pool.multi();
  pid_t process = getpid();
  std::vector<std::unique_ptr<Transfer>> transfers = {};
  HttpClock::time_point next_look = {};  // for those that are silent

  // Takes it out of the list and its handle off the multi handle.
  std::unique_ptr<Transfer> taken_out(const Transfer* transfer) {
    const auto at = std::find_if(transfers.begin(), transfers.end(),
                                 [&](const auto& one) { return one.get() == transfer; });
    std::unique_ptr<Transfer> out = std::move(*at);
    transfers.erase(at);
    if (CURL* const easy = out->release()) {
      curl().multi_remove_handle(multi, easy);
      pool.give_back_easy(easy);
    }
    return out;
  }

  void begin_those_due(HttpClock::time_point now) {
    for (auto& transfer : transfers) {
      if (transfer->begun() || transfer->not_before() > now) continue;
      CURL* const easy = pool.easy(options);
      transfer->take(easy, now);
      if (curl().multi_add_handle(multi, easy) != CURLM_OK)
        throw Error(ErrorCode::kInternal, "libcurl does not take a request");
    }
  }

  Exchange* one_that_ended() {
    int left = 0;
    while (const CURLMsg* message = curl().multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;  // the message is gone with its handle
      Transfer* transfer = nullptr;
      curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      const auto out = taken_out(transfer);
      out->end(code);
      return &out->exchange();
    }
    return nullptr;
  }

  // By the clock: its deadline, or it was silent.
  Exchange* one_that_is_late(HttpClock::time_point now) {
    const bool look = now >= next_look;
    if (look) next_look = now + options.silence / 4;
    for (const auto& transfer : transfers) {
      const bool late = now >= transfer->exchange().deadline;
      if (!late && !(look && transfer->begun() && transfer->silent_since(now, options.silence))) continue;
      if (look) next_look = now;  // the rest has not been looked at
      const auto out = taken_out(transfer.get());
      if (late)
        out->end(Exchange::Outcome::kLate, "the deadline passed");
      else
        out->end(Exchange::Outcome::kBroken, "the server was silent");
      return &out->exchange();
    }
    return nullptr;
  }

  HttpClock::time_point next_event(HttpClock::time_point until) const {
    until = std::min(until, next_look);
    for (const auto& transfer : transfers) {
      until = std::min(until, transfer->exchange().deadline);
      if (!transfer->begun()) until = std::min(until, transfer->not_before());
    }
    return until;
  }
};

Transfers::Transfers(Http& http)
    : state_(new State{.options = http.state_->options, .pool = http.state_->pool.get()}) {}

Transfers::~Transfers() {
  if (state_->process != getpid()) {  // everything in it is the parent's
    (void)state_.release();
    return;
  }
  while (!state_->transfers.empty()) (void)state_->taken_out(state_->transfers.back().get());
  state_->pool.give_back_multi(state_->multi);
}

void Transfers::start(Exchange& exchange, std::chrono::steady_clock::time_point not_before) {
  state_->transfers.push_back(std::make_unique<Transfer>(exchange, not_before));
}

void Transfers::stop(Exchange& exchange) {
  for (const auto& transfer : state_->transfers)
    if (&transfer->exchange() == &exchange) return (void)state_->taken_out(transfer.get());
}

std::size_t Transfers::under_way() const { return state_->transfers.size(); }

Exchange* Transfers::next(std::chrono::steady_clock::time_point until) {
  State& s = *state_;
  for (;;) {
    if (Exchange* const ended = s.one_that_ended()) return ended;
    if (s.transfers.empty()) return nullptr;
    s.begin_those_due(HttpClock::now());
    int running = 0;
    if (const CURLMcode code = curl().multi_perform(s.multi, &running); code != CURLM_OK)
      throw Error(ErrorCode::kInternal,
                  std::string("libcurl does not go on: ") + curl().multi_strerror(code));
    if (Exchange* const ended = s.one_that_ended()) return ended;
    const auto now = HttpClock::now();
    if (Exchange* const late = s.one_that_is_late(now)) return late;
    if (now >= until) return nullptr;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(s.next_event(until) - now);
    curl().multi_poll(s.multi, nullptr, 0,
                      static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, 60'000)), nullptr);
  }
}

}  // namespace cairn::s3
