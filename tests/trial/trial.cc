// What points do in a program that is made for trials.
//
//   CAIRN_FAILPOINT=NAME:N:kill     the N-th time a thread of this process comes to NAME, the process dies
//   CAIRN_FAILPOINT=NAME:N:error    an I/O error is thrown there instead
//   CAIRN_FAILPOINT=NAME:N:sleep    it waits there for CAIRN_FAILPOINT_MS milliseconds (1,000)
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/trial.h"
#include "cairn/error.h"
#include "failpoint.h"

namespace cairn::trial {
namespace {

std::string from_environment(const char* name) {
  const char* said = std::getenv(name);
  return said == nullptr ? std::string() : said;
}

struct Failpoint {
  std::string name;
  long nth = 1;
  std::string action;
};

// Whoever mistypes one would see nothing fail and think all is well.
[[noreturn]] void refuse(const std::string& said) {
  std::fprintf(stderr, "CAIRN_FAILPOINT is '%s'; NAME:N:kill|error|sleep is wanted\n", said.c_str());
  std::_Exit(2);
}

Failpoint parse(const std::string& said) {
  if (said.empty()) return {};
  const std::size_t first = said.find(':');
  const std::size_t second = first == said.npos ? said.npos : said.find(':', first + 1);
  if (second == said.npos) refuse(said);
  Failpoint point{said.substr(0, first), std::atol(said.c_str() + first + 1), said.substr(second + 1)};
  if (point.nth < 1 || (point.action != "kill" && point.action != "error" && point.action != "sleep"))
    refuse(said);
  return point;
}

void act(const Failpoint& point) {
  if (point.action == "kill") ::kill(::getpid(), SIGKILL);
  if (point.action == "error")
    throw Error(ErrorCode::kIo, "failpoint").while_doing(point.name).with_errno(EIO);
  const std::string ms = from_environment("CAIRN_FAILPOINT_MS");
  std::this_thread::sleep_for(std::chrono::milliseconds(ms.empty() ? 1000 : std::atol(ms.c_str())));
}

struct Points {
  std::mutex mutex;
  Failpoint wanted = parse(from_environment("CAIRN_FAILPOINT"));
  std::map<std::string, long> times;  // that each was come to
};

Points& points() {
  static Points points;
  return points;
}

}  // namespace

void choose(const std::string& failpoint) {
  const std::lock_guard lock(points().mutex);
  points().wanted = parse(failpoint);
  points().times.clear();
}

std::map<std::string, long> reached() {
  const std::lock_guard lock(points().mutex);
  return points().times;
}

void reach(const char* point) {
  Failpoint wanted;
  {
    const std::lock_guard lock(points().mutex);
    const long times = ++points().times[point];
    if (points().wanted.name == point && points().wanted.nth == times) wanted = points().wanted;
  }
  if (!wanted.name.empty()) act(wanted);
}

}  // namespace cairn::trial
