// kill_check: saves of real MPI processes, one of which dies; run by tests/mpi/test_mpi_kills.py.
//
//   save DIR VERSION                       nobody dies
//   save DIR VERSION RANK MICROSECONDS     the rank dies so long after the save began
//   save DIR VERSION RANK POINT:N:kill     the rank dies at a point (base/trial.h)
//   check DIR                              without MPI: prints the version of the checkpoint, or "none";
//                                          exits 1 when what is there is not whole
//
// Each rank that is alive at the end prints "rank R: " and "ok" or its error's text.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "../crash/saved_versions.h"
#include "cairn/mpi_group.h"
#include "failpoint.h"

namespace {

using namespace cairn;
using namespace std::chrono_literals;

int check(const std::string& dir) {
  try {
    const std::optional<int> version = version_in(dir);
    std::printf("%s\n", version ? std::to_string(*version).c_str() : "none");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kill_check: %s\n", e.what());
    return 1;
  }
}

void die_later(const std::string& when) {
  if (when.find(':') != when.npos) return trial::choose(when);
  std::thread([time = std::chrono::microseconds(std::atol(when.c_str()))] {
    std::this_thread::sleep_for(time);
    ::kill(::getpid(), SIGKILL);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "check") return check(argv[2]);
  if (argc < 4) return 2;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    const auto group = mpi_group(MPI_COMM_WORLD, 30s);
    std::string text = "ok";
    try {
      if (argc > 5 && group->rank() == std::atoi(argv[4])) die_later(argv[5]);
      save_version(*group, argv[2], std::atoi(argv[3]));
    } catch (const std::exception& e) {
      text = e.what();
    }
    std::printf("rank %d: %s\n", group->rank(), text.c_str());
    std::fflush(stdout);
    if (argc > 5) ::_exit(0);  // a dead rank would be waited for at the end
  }
  MPI_Finalize();
  return 0;
}
