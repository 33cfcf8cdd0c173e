// A trainer of many MPI ranks that saves and loads: what cairn is for, in one file.
//
//   mpirun -n 4 train save DIR STEP [MIB [PACE]]  step STEP's state, then that of STEP + 1 over it
//   mpirun -n 3 train load DIR STEP [MIB]         the same state on other ranks, cut by columns; compares
//                                                 every byte
//
// The "model" is two matrices and their optimizer state, MIB (256) MiB in all, cut by rows over the ranks.
// With a PACE each rank writes so many MiB a second at most.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cairn/cairn.h"
#include "cairn/layout.h"
#include "cairn/mpi_group.h"

namespace {

using namespace cairn;

struct Job {
  Group& group;
  std::string dir;
  int step;
  std::int64_t mib;
  MeshLayout layout;
  std::uint64_t bytes_per_second = 0;  // no limit

  Shape shape() const { return {mib * 64, 1024}; }  // four float32 tensors of it are `mib` MiB
};

// Element (row, column) of a tensor depends on the step, the tensor and where it is, and on nothing else.
Value part(const Job& job, int tensor, bool filled) {
  const Box box = job.layout.box(job.shape(), job.group.rank());
  Tensor mine = Tensor::zeros(DType::kFloat32, box.sizes);
  auto* element = reinterpret_cast<float*>(mine.bytes().data());
  for (std::int64_t row = 0; filled && row < box.sizes[0]; ++row) {
    for (std::int64_t column = 0; column < box.sizes[1]; ++column) {
      const std::int64_t at = (box.offsets[0] + row) * 1024 + box.offsets[1] + column;
      *element++ = static_cast<float>((at * 31 + job.step * 7 + tensor) % 1000003);
    }
  }
  return Value(job.layout.shard(mine, job.shape(), job.group.rank()));
}

StateDict state_of(const Job& job, bool filled) {
  StateDict state;
  state.set("model", Dict{{"up", part(job, 0, filled)}, {"down", part(job, 1, filled)}});
  state.set("optim", Dict{{"exp_avg", part(job, 2, filled)}, {"exp_avg_sq", part(job, 3, filled)}});
  state.set("step", Value(filled ? job.step : 0));
  return state;
}

template <class F> double seconds(const F& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double rate(const Job& job, double time) { return static_cast<double>(job.mib) * 1048576 / 1e9 / time; }

void save_twice(Job job) {
  DefaultSavePlanner planner({.enable_plan_caching = true});  // kept: an unchanged plan is not sent again
  const SaveOptions options{
      .group = &job.group, .planner = &planner, .write = {.bytes_per_second = job.bytes_per_second}};
  for (int i = 0; i < 2; ++i, ++job.step) {
    const StateDict state = state_of(job, true);
    SaveResult result;
    const double time = seconds([&] { result = save(state, job.dir, options); });
    if (job.group.rank() == 0) {
      std::printf("step %d: %d ranks saved %lld MiB in %.2f s, %.2f GB/s; %llu bytes of plans and results\n",
                  job.step, job.group.size(), static_cast<long long>(job.mib), time, rate(job, time),
                  static_cast<unsigned long long>(result.bytes_exchanged));
    }
  }
}

bool same(const Value& a, const Value& b) {
  const auto *x = a.get_if<ShardedTensor>(), *y = b.get_if<ShardedTensor>();
  return x == nullptr ? a == b : Value(x->shards.at(0).data) == Value(y->shards.at(0).data);
}

void load_and_compare(const Job& job) {
  StateDict state = state_of(job, false);
  LoadResult result;
  const double time = seconds([&] { result = load(state, job.dir, {.group = &job.group}); });
  const Flattened got = flatten(state), expected = flatten(state_of(job, true));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!same(got[i].value, expected[i].value))
      throw Error(ErrorCode::kCorrupt, "it is not what was saved").of_tensor(expected[i].name);
  }
  if (job.group.rank() == 0) {
    std::printf(
        "step %d: %d ranks loaded it in %.2f s, %.2f GB/s; every byte is as it was saved, %llu of %llu "
        "verified\n",
        job.step, job.group.size(), time, rate(job, time),
        static_cast<unsigned long long>(result.read.verified),
        static_cast<unsigned long long>(result.read.read));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: train save|load DIR STEP [MIB [PACE]]\n", stderr);
    return 2;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int status = 0;
  {
    const auto group = mpi_group(MPI_COMM_WORLD);
    const bool saves = std::string(argv[1]) == "save";
    const Placement cut = Placement::shard(saves ? 0 : 1);
    Job job{
        *group, argv[2], std::atoi(argv[3]), argc > 4 ? std::atoll(argv[4]) : 256, {{group->size()}, {cut}}};
    if (argc > 5) job.bytes_per_second = std::strtoull(argv[5], nullptr, 10) << 20;
    try {
      saves ? save_twice(job) : load_and_compare(job);
    } catch (const Error& e) {
      std::fprintf(stderr, "train: %s\n", e.what());
      status = 1;
    }
  }
  MPI_Finalize();
  return status;
}
