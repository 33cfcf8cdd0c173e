// growth DIR SAVES sync|async: saves and loads of one process, which must not make it larger.
//
// After a tenth of the saves and after the last one: resident memory with everything given back that the
// allocator has to spare, threads, descriptors. Prints them as one JSON object; exits 1 when there are more
// threads or descriptors, or more than a MiB more memory.
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "cairn/async.h"
#include "cairn/cairn.h"
#include "trainer_version.h"

namespace {

using namespace cairn;

#ifdef __SANITIZE_THREAD__
constexpr std::int64_t kMostKib = 8192;  // what the sanitizer remembers of past accesses is in it
#else
constexpr std::int64_t kMostKib = 1024;
#endif

struct Size {
  std::int64_t kib = 0;
  std::int64_t threads = 0;
  std::int64_t descriptors = 0;
};

std::int64_t status_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  throw std::runtime_error("no " + key + " in /proc/self/status");
}

Size size_now() {
  // The system forgets a thread a moment after it was joined.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::malloc_trim(0);
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return {status_of("VmRSS:"), status_of("Threads:"), std::distance(begin(open), end(open))};
}

StateDict state_of(int version) {
  StateDict state = trainer_state(0, 1, version);
  state.set("large", Value(numbered({1 << 16}, version)));
  return state;
}

// One after the other: each is there before the next begins, and is loaded and compared.
class Saves {
 public:
  Saves(std::string dir, bool async) : dir_(std::move(dir)) {
    options_.write.durable = false;  // a disk's speed is not what is tried here
    AsyncOptions background;
    background.save = options_;
    if (async) saver_ = std::make_unique<AsyncSaver>(background);
  }

  void once(int version) {
    const StateDict state = state_of(version);
    if (saver_) {
      saver_->async_save(state, dir_).wait();
    } else {
      save(state, dir_, options_);
    }
    const StateDict loaded = load_into_new(dir_);
    require_trainer(loaded, version);
    require(*loaded.find("large") == *state.find("large"), "what was loaded is not what was saved");
  }

 private:
  std::string dir_;
  SaveOptions options_;
  std::unique_ptr<AsyncSaver> saver_;
};

void run(const std::string& dir, int count, bool async) {
  Saves saves(dir, async);
  const int warm = count / 10;
  Size first, last;
  for (int i = 1; i <= count; ++i) {
    saves.once(i);
    if (i == warm) first = size_now();
  }
  last = size_now();
  fmt::print(R"({{"saves": {}, "kib": [{}, {}], "threads": [{}, {}], "descriptors": [{}, {}]}})"
             "\n",
             count, first.kib, last.kib, first.threads, last.threads, first.descriptors, last.descriptors);
  require(last.threads <= first.threads, "threads are left over");
  require(last.descriptors <= first.descriptors, "descriptors are left open");
  require(last.kib <= first.kib + kMostKib, "the process grows");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return run_trial("growth", fmt::format("{} {}", argv[2], argv[3]),
                   [&] { run(argv[1], std::atoi(argv[2]), std::string(argv[3]) == "async"); });
}
