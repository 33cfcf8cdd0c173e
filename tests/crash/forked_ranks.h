// A job of forked ranks, any of which can be killed, stopped or led into a failpoint.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "failpoint.h"
#include "promise.h"
#include "socket_mail.h"

namespace cairn {

// How a rank ended, or the negated signal that killed it.
inline constexpr int kSucceeded = 0;
inline constexpr int kRefused = 3;  // with a cairn::Error
inline constexpr int kOdd = 4;      // with anything else

struct Ended {
  int status = kOdd;
  std::string text;                     // of its error
  std::chrono::duration<double> after;  // since the job was started
  std::map<std::string, long> reached;  // points, and how often; of a rank that was not killed
  bool killed() const { return status == -SIGKILL; }
};

class ForkedRanks {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::function<void(Group&)>;

  // Calls `body` on every rank. `failpoints` are those of single ranks ("NAME:N:kill").
  ForkedRanks(int ranks, const Body& body, const std::map<int, std::string>& failpoints = {})
      : begin_(Clock::now()) {
    Sockets sockets(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      std::array<int, 2> ends{};
      require(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
      const auto found = failpoints.find(rank);
      const pid_t pid = ::fork();
      if (pid == 0)
        be_rank(sockets, rank, ranks, body, found == failpoints.end() ? "" : found->second, ends[1]);
      ::close(ends[1]);
      all_.push_back({pid, ends[0]});
    }
  }
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;
  ~ForkedRanks() {
    for (Rank& rank : all_) {
      ::close(rank.words);
      if (!rank.running) continue;
      ::kill(rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
  }

  int size() const { return static_cast<int>(all_.size()); }
  void signal(int rank, int number) const { ::kill(all_[static_cast<std::size_t>(rank)].pid, number); }

  // Until the rank has said how it ended, or is dead. Who has said nothing so long after the start hangs.
  Ended wait(int number, std::chrono::duration<double> patience = std::chrono::seconds(45)) {
    Rank& rank = all_[static_cast<std::size_t>(number)];
    std::string words;
    std::array<char, 4096> buffer{};
    while (Clock::now() - begin_ < patience) {
      pollfd ready{rank.words, POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      const ssize_t n = ::read(rank.words, buffer.data(), buffer.size());
      words.append(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
      if (n > 0 && !words.ends_with(kEnd)) continue;
      Ended ended = words_of(words);
      if (n <= 0) ended.status = status_of_dead(rank);
      ended.after = Clock::now() - begin_;
      return ended;
    }
    throw BrokenPromise(fmt::format("rank {} hangs", number));
  }

  std::vector<Ended> wait_all() {
    std::vector<Ended> ended;
    for (int rank = 0; rank < size(); ++rank) ended.push_back(wait(rank));
    return ended;
  }

  void require_success(const std::string& what) {
    for (const Ended& rank : wait_all()) require(rank.status == kSucceeded, what + " failed: " + rank.text);
  }

 private:
  static constexpr std::string_view kEnd = ".\n";

  struct Rank {
    pid_t pid;
    int words;  // what it says at its end: its error's text, and the points it came to
    bool running = true;
  };

  [[noreturn]] static void be_rank(Sockets& sockets, int rank, int ranks, const Body& body,
                                   const std::string& failpoint, int words) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sockets.close_all_but(rank);
    std::string text;
    int status = kSucceeded;
    try {
      trial::choose(failpoint);
      const auto group = group_over(std::make_unique<SocketMail>(sockets, rank), rank, ranks);
      body(*group);
    } catch (const Error& e) {
      text = e.what();
      status = kRefused;
    } catch (const std::exception& e) {
      text = e.what();
      status = kOdd;
    }
    for (char& c : text) c = c == '\n' ? ' ' : c;
    text = fmt::format("{}\n{}\n", status, text.substr(0, 2000));
    for (const auto& [point, times] : trial::reached()) text += fmt::format("{} {}\n", point, times);
    text += kEnd;
    if (::write(words, text.data(), text.size()) < 0) ::_exit(kOdd);
    // Whoever has failed lives on and answers nobody: the others must not depend on its death.
    for (;;) ::pause();
  }

  static Ended words_of(const std::string& words) {
    Ended ended;
    std::istringstream lines(words);
    std::string line;
    if (std::getline(lines, line)) ended.status = std::atoi(line.c_str());
    std::getline(lines, ended.text);
    while (std::getline(lines, line)) {
      const std::size_t space = line.find(' ');
      if (space != line.npos) ended.reached[line.substr(0, space)] = std::atol(line.c_str() + space);
    }
    return ended;
  }

  static int status_of_dead(Rank& rank) {
    int status = 0;
    ::waitpid(rank.pid, &status, 0);
    rank.running = false;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : kOdd;
  }

  Clock::time_point begin_;
  std::vector<Rank> all_;
};

// main() of a harness that is called NAME DIR TIMES SEED.
template <class Harness> int run_harness(const char* name, int argc, char** argv) {
  if (argc != 4) return 2;
  return run_trial(name, fmt::format("seed {}", argv[3]), [&] {
    Harness(argv[1], static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10))).run(std::atoi(argv[2]));
  });
}

}  // namespace cairn
