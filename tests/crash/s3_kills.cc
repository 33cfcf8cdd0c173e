// s3_kills KILLS SEED: saves to a bucket, by processes that are killed at some moment.
//
// The server is in this process. Those who save are this program again (`--save`), each a job of three ranks
// in threads. One is killed after some time, or when its n-th request has come - before that is carried out
// or while it is -, or at a point in the code (CAIRN_POINT). Then the checkpoint must be the old or the new
// one, whole, and a clean-up must leave it and nothing else. Prints one JSON object; exits 1 at the first
// broken promise, with the seed that repeats it.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "failpoint.h"
#include "promise.h"
#include "random.h"
#include "s3_checks.h"

extern char** environ;  // NOLINT

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;
using Duration = std::chrono::duration<double>;

constexpr int kJobRanks = 3;
constexpr std::string_view kSaved = "saved";
constexpr int kRefusedSave = 3;
constexpr std::chrono::milliseconds kQuiet(20);
constexpr double kLonger = 1.010, kShorter = 0.985;  // as in kill_save

// What a process that saves does and prints: whether it is done, and where it came by.
int be_saver(const std::string& endpoint, int version) {
  const auto bucket = s3_bucket(endpoint);
  try {
    run_ranks(kJobRanks, [&](Group& group) {
      SaveOptions how;
      how.group = &group;
      how.files = s3_files(bucket);
      cairn::save(s3_state(group.rank(), kJobRanks, version, false), "s3", how);
    });
  } catch (const Error& e) {
    fmt::print("{}\n", e.what());
    return kRefusedSave;
  }
  std::string text = std::string(kSaved) + "\n";
  for (const auto& [point, times] : trial::reached()) text += fmt::format("{} {}\n", point, times);
  return ::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

struct Ended {
  bool killed = false;
  bool saved = false;
  std::string text;  // what it printed
  Duration after{0};
};

class Saver {
 public:
  Saver(const std::string& endpoint, int version, const std::string& failpoint) {
    std::array<int, 2> ends{};
    require(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
    words_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string program = "/proc/self/exe", save = "--save", where = endpoint, what = std::to_string(version);
    const std::array<char*, 5> arguments = {program.data(), save.data(), where.data(), what.data(), nullptr};
    std::string variable = "CAIRN_FAILPOINT=" + failpoint;
    std::vector<char*> environment;
    for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
    if (!failpoint.empty()) environment.push_back(variable.data());
    environment.push_back(nullptr);
    const int failed =
        ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    require(failed == 0, fmt::format("cannot be started: {}", std::strerror(failed)));
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  ~Saver() {
    ::close(words_);
    if (pid_ == 0) return;
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }

  Ended wait() {
    Ended ended;
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t n = ::read(words_, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      ended.text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    ended.after = Clock::now() - began_;
    ended.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ended.saved = ended.text.starts_with(kSaved);
    const bool refused = WIFEXITED(status) && WEXITSTATUS(status) == kRefusedSave;
    require(ended.killed || ended.saved || refused, "a save ended oddly: " + ended.text);
    return ended;
  }

 private:
  const Clock::time_point began_ = Clock::now();
  pid_t pid_ = 0;
  int words_ = -1;
};

class Harness {
 public:
  explicit Harness(std::uint64_t seed) : random_(seed) {
    server_.set_fault([this](const S3Request&) { return on_request(); });
  }

  void run(int kills) {
    measure();
    for (int i = 0; i < kills; ++i) {
      if (random_.chance(15)) begin_anew();
      if (i % 10 == 9) undisturbed();
      killed();
    }
    undisturbed();
    fmt::print(
        R"({{"kills": {}, "by_time": {}, "at_requests": {}, "at_points": {}, "points": {}, "before_commit": {}, )"
        R"("after_commit": {}, "finished": {}, "new_ids": {}, "requests_of_a_save": {}, "span_ms": {:.1f}}})"
        "\n",
        old_ + new_ - finished_, by_time_, at_requests_, at_points_, fired_.size(), old_, new_, finished_,
        new_ids_, requests_, 1e3 * span_.count());
  }

 private:
  // In a thread of the server. The victim is dead before the request is answered.
  S3Fault on_request() {
    if (++seen_ != fatal_) return {};
    while (victim_ == 0) std::this_thread::yield();
    ::kill(victim_, SIGKILL);
    return {.drop = unheard_};
  }

  Ended save(const std::string& failpoint, std::uint64_t fatal_request, std::optional<Duration> time) {
    victim_ = 0;
    seen_ = 0;
    fatal_ = fatal_request;
    Saver saver(server_.endpoint(), next_, failpoint);
    victim_ = saver.pid();
    if (time) {
      std::this_thread::sleep_for(*time);
      saver.kill();
    }
    Ended ended = saver.wait();
    fatal_ = 0;
    if (ended.killed) wait_for_quiet();
    return ended;
  }

  // What the dead one has sent may still be carried out.
  void wait_for_quiet() {
    for (std::uint64_t before = ~std::uint64_t{0}; before != seen_;) {
      before = seen_;
      std::this_thread::sleep_for(kQuiet);
    }
  }

  void measure() {
    std::vector<Duration> times;
    for (int i = 0; i < 5; ++i) times.push_back(undisturbed());
    std::sort(times.begin(), times.end());
    span_ = 1.1 * times[2];
  }

  void begin_anew() {
    for (const std::string& key : server_.keys()) server_.remove(key);
    at_ = std::nullopt;
    ++new_ids_;
  }

  Duration undisturbed() {
    const Ended ended = save("", 0, std::nullopt);
    require(ended.saved, "a save that nobody disturbed failed: " + ended.text);
    requests_ = seen_;
    std::istringstream lines(ended.text.substr(ended.text.find('\n')));
    std::string point;
    for (long times = 0; lines >> point >> times;) points_[point] = times;
    at_ = next_++;
    require(found() == at_, "an undisturbed save is not there");
    return ended.after;
  }

  void killed() {
    Ended ended;
    const std::uint64_t lot = random_.below(3);
    unheard_ = random_.chance(50);
    if (lot == 0) {
      const double share = static_cast<double>(random_.below(1000)) / 1000;
      ended = save("", 0, span_ * share);
      ++by_time_;
    } else if (lot == 1) {
      ended = save("", 1 + random_.below(requests_), std::nullopt);
      ++at_requests_;
    } else {
      const auto point =
          std::next(points_.begin(), static_cast<std::ptrdiff_t>(random_.below(points_.size())));
      const auto nth = 1 + random_.below(static_cast<std::uint64_t>(point->second));
      ended = save(fmt::format("{}:{}:kill", point->first, nth), 0, std::nullopt);
      fired_[point->first] += ended.killed ? 1 : 0;
      ++at_points_;
    }
    const std::optional<int> there = found();
    require(there == at_ || there == next_, "neither the old nor the new checkpoint");
    require(!ended.saved || there == next_, "a save said that it was done, and it is not there");
    require(ended.killed || ended.saved, "a save failed that was not killed: " + ended.text);
    ++(there == next_ ? new_ : old_);
    if (lot == 0) span_ *= there == next_ ? kShorter : kLonger;
    finished_ += ended.killed ? 0 : 1;
    at_ = there;
    ++next_;
    if (random_.chance(70)) require_only_checkpoint(server_, ahead_, false, random_.chance(30));
  }

  std::optional<int> found() const { return s3_version(s3_files(s3_bucket(server_.endpoint())), false); }

  sim::Random random_;
  std::atomic<pid_t> victim_ = 0;
  std::atomic<std::uint64_t> seen_ = 0;   // requests since the save began
  std::atomic<std::uint64_t> fatal_ = 0;  // which of them is the last; 0: none
  std::atomic<bool> unheard_ = false;     // and whether it is carried out
  S3Server server_;
  std::chrono::seconds ahead_{0};
  Duration span_{0};
  std::uint64_t requests_ = 0;
  std::map<std::string, long> points_;  // of an undisturbed save
  std::map<std::string, int> fired_;
  std::optional<int> at_;  // the version that is there
  int next_ = 1;
  int old_ = 0, new_ = 0, finished_ = 0, new_ids_ = 0;
  int by_time_ = 0, at_requests_ = 0, at_points_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--save") return be_saver(argv[2], std::atoi(argv[3]));
  if (argc != 3) return 2;
  return run_trial("s3_kills", fmt::format("seed {}", argv[2]),
                   [&] { Harness(std::strtoull(argv[2], nullptr, 10)).run(std::atoi(argv[1])); });
}
