// no_memory OPERATION MOST SEED: the n-th allocation of an operation fails, for every n, once and for ever
// after.
//
// Each operation then fails with an Error that says so, or succeeds and is right; it neither ends the process
// nor keeps memory or descriptors, and a checkpoint that was there is still there. At most MOST n's are tried
// for each of the two; they are spread evenly when there are more. OPERATION is a name of the tables in
// parse_operations.h and checkpoint_operations.h, `parsers`, `checkpoints` or `all`. Prints a JSON object for
// each.
#include "failing_memory.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "checkpoint_operations.h"
#include "operation.h"
#include "parse_operations.h"
#include "promise.h"

namespace {

using namespace cairn;

constexpr unsigned kHangSeconds = 30;

// Where the process dies, it says at which allocation, and who was calling whom.
std::array<char, 256> g_where{};

void die(int signal) {
  const char* what = signal == SIGALRM ? "no_memory: hangs: " : "no_memory: dies: ";
  (void)!::write(2, what, std::strlen(what));
  (void)!::write(2, g_where.data(), std::strlen(g_where.data()));
  std::array<void*, 64> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), 2);
  ::_exit(1);
}

// Lower than any that is open: the same afterwards when none is left open.
int first_free_descriptor() {
  const int fd = ::dup(0);
  ::close(fd);
  return fd;
}

class Trial {
 public:
  Trial(Operation& operation, std::mt19937_64& random) : operation_(operation), random_(random) {}

  void run(std::uint64_t most) {
    operation_.prepare();
    attempt(0, false);  // what is made once in a process is made now
    attempt(0, false);
    const std::uint64_t total = failing_memory.calls;
    for (const bool for_ever : {false, true}) {
      if (for_ever && !operation_.has_for_ever()) continue;
      const std::uint64_t stride = total / most + 1;
      for (std::uint64_t n = 1 + random_() % stride; n <= total; n += kInAProcess * stride)
        in_a_child([&] {
          for (std::uint64_t i = n; i <= total && i < n + kInAProcess * stride; i += stride)
            check(i, for_ever);
        });
    }
    fmt::print(R"({{"operation": "{}", "allocations": {}, "tried": {}, "failed": {}, "succeeded": {}}})"
               "\n",
               operation_.name(), total, counts_->tried, counts_->errors, counts_->tried - counts_->errors);
    std::fflush(stdout);
  }

 private:
  // Exceptions that get no memory are kept in a reserve of libstdc++, which falls to pieces with use: after
  // some thousands of them, a process has none left that is large enough, and ends.
  static constexpr std::uint64_t kInAProcess = 250;

  struct Counts {
    std::uint64_t tried = 0, errors = 0;
  };
  // In memory that children share.
  static Counts* shared_counts() {
    void* const at =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(at != MAP_FAILED, "there is no memory");
    return new (at) Counts;
  }

  template <class Work> static void in_a_child(const Work& work) {
    const pid_t child = ::fork();
    require(child >= 0, "there is no process to be had");
    if (child == 0) {
      const int code = run_trial("no_memory", "see above", work);
      if (code != 0) (void)!::write(2, g_where.data(), std::strlen(g_where.data()));
      ::_exit(code);
    }
    int status = 0;
    require(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "a child has found something");
  }

  void check(std::uint64_t n, bool for_ever) {
    g_where.fill('\0');
    fmt::format_to_n(g_where.data(), g_where.size() - 2, "{}, allocation {} {}\n", operation_.name(), n,
                     for_ever ? "and all after it" : "alone");
    ::alarm(kHangSeconds);
    const int descriptors = first_free_descriptor();
    const std::int64_t kept = attempt(n, for_ever);
    counts_->errors += failed_ ? 1 : 0;
    require(first_free_descriptor() == descriptors, "a descriptor is left open");
    // Something may be made late that stays for good: only what grows again is lost.
    if (kept > 0 && attempt(n, for_ever) > 0 && attempt(n, for_ever) > 0 && attempt(n, for_ever) > 0)
      require(false, "memory is lost");
    ++counts_->tried;
  }

  // Returns how many blocks it kept.
  std::int64_t attempt(std::uint64_t n, bool for_ever) {
    operation_.prepare();
    const std::int64_t before = failing_memory.live;
    failing_memory.arm(n, for_ever);
    const bool succeeded = run_once();
    try {
      operation_.require_kept(succeeded);
    } catch (const std::exception& e) {
      throw BrokenPromise(fmt::format("{}; {}", e.what(), succeeded ? "it succeeded" : said_));
    }
    said_.clear();
    operation_.forget();
    return failing_memory.live - before;
  }

  bool run_once() {
    std::string wrong;
    bool succeeded = false;
    try {
      operation_.run();
      failing_memory.disarm();
      succeeded = true;
    } catch (const Error& e) {
      failing_memory.disarm();
      said_ = e.what();
      if (!operation_.expects(e)) wrong = std::string("an odd error: ") + e.what();
    } catch (const std::bad_alloc&) {
      failing_memory.disarm();
      // Where none is left for ever there may be none for the Error either.
      if (!operation_.is_internal() && !failing_memory.for_ever) wrong = "std::bad_alloc, and no Error";
    } catch (const std::exception& e) {
      failing_memory.disarm();
      wrong = std::string("not an Error: ") + e.what();
    }
    require(wrong.empty(), wrong);
    require(succeeded || failing_memory.failed > 0, "it failed without a reason");
    failed_ = !succeeded;
    return succeeded;
  }

  Operation& operation_;
  std::mt19937_64& random_;
  std::string said_;  // the last error
  bool failed_ = false;
  Counts* const counts_ = shared_counts();
};

void run(const std::string& which, std::uint64_t most, std::mt19937_64& random) {
  const TestFolder folder(place_in_memory());
  std::vector<std::unique_ptr<Operation>> operations;
  if (which != "checkpoints") add_parse_operations(operations);
  if (which != "parsers") add_checkpoint_operations(operations, folder.path());
  bool any = false;
  for (const auto& operation : operations) {
    if (which != "all" && which != "parsers" && which != "checkpoints" && which != operation->name())
      continue;
    any = true;
    Trial(*operation, random).run(most);
  }
  require(any, "no such operation");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::array<void*, 1> frame{};
  (void)::backtrace(frame.data(), frame.size());  // the first one takes memory
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGALRM}) std::signal(signal, die);
  const int code = run_trial("no_memory", fmt::format("seed {}", argv[3]), [&] {
    std::mt19937_64 random(std::strtoul(argv[3], nullptr, 10));
    run(argv[1], std::strtoull(argv[2], nullptr, 10), random);
  });
  if (code != 0) (void)!::write(2, g_where.data(), std::strlen(g_where.data()));
  return code;
}
