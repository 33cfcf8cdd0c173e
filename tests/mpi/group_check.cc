// group_check [silent]: the promises of a Group over MPI, run by tests/mpi/test_mpi.py under mpirun.
//
// With "silent" the last rank says nothing for a while: the others must stop at their deadline, name it, and
// the group must work again once it is back.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "cairn/error.h"
#include "cairn/mpi_group.h"
#include "testing/check_group.h"

namespace {

using namespace cairn;
using namespace std::chrono_literals;

void check_silence(Group& group) {
  const int last = group.size() - 1;
  if (group.rank() == last) {
    std::this_thread::sleep_for(1500ms);
  } else if (group.rank() == 0) {
    try {
      group.gather("x", 0, {1, Step::in(500ms)});
      throw std::runtime_error("gather did not fail");
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kTimeout || e.rank() != last) throw;
    }
  } else {
    group.gather("x", 0, {1, Step::in(500ms)});
  }
  // The one that was silent sends what nobody waits for any more; it is dropped.
  if (group.rank() == last) group.gather(std::string(1 << 20, 'x'), 0, {1, Step::in(10s)});
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int status = 0;
  try {
    auto group = mpi_group(MPI_COMM_WORLD, 30s);
    if (argc > 1 && std::strcmp(argv[1], "silent") == 0) check_silence(*group);
    check_group(*group, 100);
    if (group->rank() == 0) std::printf("%d ranks ok\n", group->size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
