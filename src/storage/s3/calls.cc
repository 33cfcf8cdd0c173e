// The way of calls: sent, judged, sent again, hedged, until all have ended or one has failed.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "cairn/error.h"
#include "storage/s3/client_state.h"
#include "storage/s3/digest.h"
#include "storage/s3/errors.h"

namespace cairn::s3 {
namespace {

using CallClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostHedged = 16 << 20;  // bytes: the second try needs as much memory
constexpr int kMostTriesOfStrangers = 4;       // a wrong address is more likely than a server that starts
constexpr auto kLeastHedgeDelay = milliseconds(100);  // what is faster than that is not worth a second try

// One request of a call. A second one beside the first has memory of its own.
struct Try : Exchange {
  struct CallWork* work = nullptr;
  bool under_way = false;
  CallClock::time_point began;
  std::optional<Credentials> credentials;
  std::string region;
  std::string endpoint;
  std::unique_ptr<std::byte[]> memory;  // that `into` is
};

// A call on its way.
struct CallWork {
  Call* call = nullptr;
  Try first;
  std::unique_ptr<Try> second;
  int tries = 0;
  bool renewed = false;  // each of these helps once
  bool clock_set = false;
  bool moved = false;
  std::string md5;
  CallClock::time_point began;
  CallClock::time_point not_before;  // of the next try
  CallClock::time_point hedge_at = CallClock::time_point::max();
};

class CallRun {
 public:
  CallRun(ClientState& state, std::span<Call> calls)
      : state_(state),
        learnt_(state.learnt.get()),
        pace_(learnt_.pace),
        works_(calls.size()),
        transfers_(state.http) {
    for (std::size_t i = 0; i < calls.size(); ++i) works_[i].call = &calls[i];
  }
  CallRun(const CallRun&) = delete;
  CallRun& operator=(const CallRun&) = delete;
  ~CallRun() {
    for (CallWork* work : running_) {
      work->call->sent_before = true;
      break_off(work->first);
      if (work->second != nullptr) break_off(*work->second);
    }
  }

  void run() {
    while (ended_ < works_.size()) {
      const auto until = start_those_due();
      if (running_.empty()) {
        std::this_thread::sleep_until(until);
        continue;
      }
      if (Exchange* const done = transfers_.next(std::min(until, next_hedge())))
        try_ended(static_cast<Try&>(*done));
      hedge_slow_ones();
    }
  }

 private:
  // Those to be sent again come first. Null: none now; `until` is when to look again.
  CallWork* due(CallClock::time_point now, CallClock::time_point& until) const {
    const bool any = !again_.empty() || fresh_ < works_.size();
    if (const auto common = pace_.not_before(); any && common > now) {
      until = std::min(until, common);
      return nullptr;
    }
    for (CallWork* work : again_) {
      if (work->not_before <= now) return work;
      until = std::min(until, work->not_before);
    }
    return fresh_ < works_.size() ? const_cast<CallWork*>(&works_[fresh_]) : nullptr;
  }

  CallClock::time_point start_those_due() {
    for (;;) {
      const auto now = CallClock::now();
      auto until = CallClock::time_point::max();
      CallWork* const work = due(now, until);
      if (work == nullptr) return until;
      // With something under way, its end is the time to look again; with nothing, others have all the
      // places.
      if (!pace_.enter(running_.empty() ? now + state_.options.deadline : now)) {
        if (!running_.empty()) return until;
        throw Error(ErrorCode::kTimeout, "waited too long for other requests of this process")
            .in_file(state_.shown(work->call->key));
      }
      if (const auto again = std::find(again_.begin(), again_.end(), work); again != again_.end())
        again_.erase(again);
      else
        ++fresh_;
      work->first.under_way = true;
      running_.push_back(work);
      start(*work);
    }
  }

  void start(CallWork& work) {
    Call& call = *work.call;
    if (work.tries == 0) {
      work.began = CallClock::now();
      call.sent_before = false;
      if (state_.options.settings.content_md5 && !call.body.empty()) work.md5 = md5_base64(call.body);
    }
    ++work.tries;
    work.second.reset();
    work.hedge_at = CallClock::time_point::max();
    if (const auto usual = may_hedge(call) ? pace_.usual(call.into.size()) : std::nullopt)
      work.hedge_at = CallClock::now() +
                      std::max<CallClock::duration>(kLeastHedgeDelay, *usual * state_.options.hedge_after);
    send(work, work.first);
  }

  // The caller has taken a place for it, which it has from here on.
  void send(CallWork& work, Try& attempt) {
    attempt.under_way = true;
    attempt.credentials.reset();
    if (!state_.options.settings.unsigned_requests) attempt.credentials = state_.credentials.get();
    Location location;
    auto now = std::chrono::system_clock::now();
    {
      const std::lock_guard lock(learnt_.mutex);
      location = learnt_.location;
      now += learnt_.clock_ahead;
    }
    static_cast<Exchange&>(attempt) =
        exchange_of(*work.call,
                    {.settings = state_.options.settings,
                     .bucket = state_.bucket,
                     .location = location,
                     .credentials = attempt.credentials ? &*attempt.credentials : nullptr,
                     .now = now},
                    work.md5);
    if (attempt.memory != nullptr) attempt.into = {attempt.memory.get(), work.call->into.size()};
    attempt.deadline = work.began + state_.options.deadline;
    attempt.region = location.region;
    attempt.endpoint = location.endpoint;
    attempt.work = &work;
    attempt.began = CallClock::now();
    transfers_.start(attempt);
    ++state_.requests;
    pace_.sent_one();
  }

  // Gives back what it has.
  void break_off(Try& attempt) {
    if (!attempt.under_way) return;
    transfers_.stop(attempt);
    let_go(attempt);
  }
  void let_go(Try& attempt) {
    attempt.under_way = false;
    attempt.memory != nullptr ? pace_.leave_hedge() : pace_.leave();
  }

  void try_ended(Try& attempt) {
    CallWork& work = *attempt.work;
    let_go(attempt);
    if (attempt.outcome == Exchange::Outcome::kAnswered) learnt_.answers = true;
    if (const auto date = time_of_http(attempt.header("date")))
      state_.server_ahead =
          std::chrono::round<std::chrono::seconds>(*date - std::chrono::system_clock::now());
    const Credentials* const credentials = attempt.credentials ? &*attempt.credentials : nullptr;
    const bool token = credentials != nullptr && !credentials->session_token.empty();
    const Judgement judgement = judged(*work.call, attempt, attempt.region, token);

    Try* const other = &attempt == &work.first ? work.second.get() : &work.first;
    if (other != nullptr && other->under_way) {
      if (judgement.verdict != Verdict::kDone) return;  // the other one may do better
      break_off(*other);
    }
    running_.erase(std::find(running_.begin(), running_.end(), &work));
    if (judgement.verdict == Verdict::kDone)
      finish(work, attempt);
    else
      go_on(work, attempt, judgement);
  }

  void finish(CallWork& work, Try& attempt) {
    Call& call = *work.call;
    pace_.went_well();
    if (!call.into.empty() && attempt.status / 100 == 2) {
      pace_.took(call.into.size(), CallClock::now() - attempt.began);
      if (attempt.memory != nullptr) std::memcpy(call.into.data(), attempt.into.data(), call.into.size());
    }
    call.status = attempt.status;
    call.answer_headers = std::move(attempt.answer_headers);
    call.text = std::move(attempt.text);
    work.second.reset();
    ++ended_;
  }

  // Sends it again, as the judgement wants it, or throws.
  void go_on(CallWork& work, Try& attempt, const Judgement& judgement) {
    Call& call = *work.call;
    call.sent_before = call.sent_before || judgement.maybe_done;
    const ErrorContext context = {
        .shown = state_.shown(call.key),
        .endpoint = attempt.endpoint,
        .region = attempt.region,
        .secret = attempt.credentials ? attempt.credentials->session_token : std::string()};
    auto delay = milliseconds(0);
    switch (judgement.verdict) {
      case Verdict::kRenew:
        if (!attempt.credentials || std::exchange(work.renewed, true))
          throw failure_of(call, judgement, context);
        state_.credentials.renew_after(*attempt.credentials);
        break;
      case Verdict::kClock: {
        const auto date = time_of_http(attempt.header("date"));
        if (!date || std::exchange(work.clock_set, true)) throw failure_of(call, judgement, context);
        const std::lock_guard lock(learnt_.mutex);
        learnt_.clock_ahead =
            std::chrono::round<std::chrono::seconds>(*date - std::chrono::system_clock::now());
        break;
      }
      case Verdict::kRegion:
        if (std::exchange(work.moved, true) || !move_to(attempt.region, judgement.region))
          throw failure_of(call, judgement, context);
        break;
      case Verdict::kAgain:
      case Verdict::kSlower:
        delay = delay_after(work, attempt);
        if (judgement.verdict == Verdict::kSlower) pace_.slowed_down(attempt.began, delay);
        break;
      case Verdict::kLate: break;
      default: throw failure_of(call, judgement, context);
    }
    const bool stranger = attempt.outcome == Exchange::Outcome::kUnreachable && !learnt_.answers;
    const int most_tries =
        stranger ? std::min(kMostTriesOfStrangers, state_.options.most_tries) : state_.options.most_tries;
    const auto now = CallClock::now();
    work.not_before = now + delay;
    if (judgement.verdict == Verdict::kLate || work.tries >= most_tries ||
        work.not_before >= work.began + state_.options.deadline)
      throw error_of_giving_up(call, judgement, context, work.tries,
                               std::chrono::duration_cast<milliseconds>(now - work.began));
    again_.push_back(&work);
  }

  // As the server wants it, or full jitter; as long as it gets when too many are sent a second time.
  milliseconds delay_after(const CallWork& work, const Try& attempt) {
    const ClientOptions& options = state_.options;
    if (!pace_.take_retry())
      return options.most_delay / 2 + delay_of_retry(0, options.most_delay / 2, options.most_delay);
    const auto delay = delay_of_retry(work.tries - 1, options.first_delay, options.most_delay);
    const std::string_view wish = attempt.header("retry-after");
    std::int64_t seconds = 0;
    std::from_chars(wish.data(), wish.data() + wish.size(), seconds);
    const std::int64_t most = std::chrono::ceil<std::chrono::seconds>(options.most_delay).count();
    return std::max(
        delay, std::min(options.most_delay, milliseconds(1000 * std::clamp<std::int64_t>(seconds, 0, most))));
  }

  // True when a request for another region than that one makes sense.
  bool move_to(const std::string& from, const std::string& to) {
    const std::lock_guard lock(learnt_.mutex);
    if (learnt_.location.region != from) return true;  // another thread has been told, too
    const auto there = moved(learnt_.location, state_.options.settings, to);
    if (there) learnt_.location = *there;
    return there.has_value();
  }

  bool may_hedge(const Call& call) const {
    return state_.options.hedge_after > 0 && call.method == "GET" && !call.into.empty() &&
           call.into.size() <= kMostHedged;
  }

  CallClock::time_point next_hedge() const {
    auto next = CallClock::time_point::max();
    for (const CallWork* work : running_) next = std::min(next, work->hedge_at);
    return next;
  }

  void hedge_slow_ones() {
    const auto now = CallClock::now();
    for (CallWork* work : running_) {
      if (work->hedge_at > now) continue;
      work->hedge_at = now + kLeastHedgeDelay;
      auto second = std::make_unique<Try>();
      second->memory.reset(new std::byte[work->call->into.size()]);
      if (!pace_.enter_hedge()) continue;
      work->hedge_at = CallClock::time_point::max();
      work->second = std::move(second);
      send(*work, *work->second);
    }
  }

  ClientState& state_;
  Learnt& learnt_;
  Pace& pace_;
  std::vector<CallWork> works_;
  std::size_t fresh_ = 0;         // the first that was never sent
  std::vector<CallWork*> again_;  // to be sent again
  std::vector<CallWork*> running_;
  std::size_t ended_ = 0;
  Transfers transfers_;  // ends before what it fills
};

}  // namespace

void run_calls(ClientState& state, std::span<Call> calls) {
  if (!calls.empty()) CallRun(state, calls).run();
}

}  // namespace cairn::s3
