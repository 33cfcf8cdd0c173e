// async_training DIR: trains while its checkpoints are written. The state may change as soon as the copy of
// it is whole; a guard around the update waits for that, and only for that.
#include <cstdio>
#include <optional>
#include <string>

#include "cairn/async.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: async_training DIR\n");
    return 2;
  }
  cairn::Tensor weights = cairn::Tensor::zeros(cairn::DType::kFloat32, {4096, 4096});
  cairn::StateDict state;
  state.set("weights", cairn::Value(weights));

  cairn::AsyncOptions options;
  options.mode = cairn::StagingMode::kOverlapped;       // async_save returns at once
  options.staging.budget = std::uint64_t{256} << 20;    // of memory for snapshots
  options.on_full = cairn::OnFull::kWriteThrough;       // slower, but it goes on
  options.nice = 10;                                    // training comes first
  options.save.write.bytes_per_second = 1'000'000'000;  // others use the disk, too
  try {
    cairn::AsyncSaver saver(options);
    std::optional<cairn::SaveHandle> saved;
    for (int step = 1; step <= 20; ++step) {
      {
        // Forward and backward would be here: they only read the weights.
        const cairn::StepGuard guard = saver.guard();
        reinterpret_cast<float*>(weights.bytes().data())[step] += 1;  // the optimizer's step
      }
      state.set("step", cairn::Value(step));
      if (step % 5 == 0)
        saved = saver.async_save(state, std::string(argv[1]) + "/step-" + std::to_string(step));
    }
    const cairn::SaveResult result = saved->wait();  // the last checkpoint is there, and safe
    std::printf("%s: %llu bytes\n", saved->id().c_str(), static_cast<unsigned long long>(result.bytes));
  } catch (const cairn::Error& e) {  // of any of the saves: each surfaces at the next, or at wait()
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
