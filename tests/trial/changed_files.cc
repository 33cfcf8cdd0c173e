// changed_files DIR ROUNDS SEED: another process cuts, grows, overwrites and replaces files while they are
// read.
//
// A checkpoint, a torch.save file and a safetensors file are loaded, read, verified and converted, over and
// over; in the middle of each the other process does something to one of their files. A load that checks must
// give the right bytes or an Error. Where there is nothing to check against, wrong bytes are counted. Nothing
// may crash: no SIGBUS, whatever is mapped. Prints the counts as one JSON object.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/convert.h"
#include "cairn/verify.h"
#include "promise.h"
#include "testing/open_file.h"
#include "testing/states.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kShape = 1 << 17;  // elements of the large tensor: half a MiB

StateDict state_of(int version) {
  StateDict state = trainer_state(0, 1, version);
  state.set("large", Value(numbered({kShape}, version)));
  return state;
}

void write_in_place(const std::string& path, std::string_view bytes, std::uint64_t offset, bool cut) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) std::_Exit(3);
  if (cut && ::ftruncate(fd, 0) != 0) std::_Exit(3);
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put <= 0) std::_Exit(3);
    offset += static_cast<std::uint64_t>(put);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  ::close(fd);
}

// A file, as it is and as it was in another save.
struct Subject {
  std::string path;
  std::string now;
  std::string other;
};

enum class Change { kCut, kGrow, kOverwrite, kReplace, kEmptyAndFill, kRemove };
constexpr int kChanges = 6;

// What to do next, in memory that both processes have.
struct Order {
  std::atomic<std::uint32_t> asked = 0, done = 0;
  std::atomic<std::uint32_t> subject = 0, change = 0, microseconds = 0;
  std::atomic<std::uint64_t> random = 0;
};

void change(const Subject& subject, Change how, std::uint64_t random) {
  const std::string& path = subject.path;
  const std::uint64_t size = subject.now.size();
  const std::uint64_t at = random % size;
  switch (how) {
    case Change::kCut:
      if (::truncate(path.c_str(), static_cast<off_t>(at)) != 0) std::_Exit(3);
      break;
    case Change::kGrow: write_in_place(path, std::string(1 + random % 9000, 'x'), size, false); break;
    case Change::kOverwrite:
      if (at < subject.other.size())
        write_in_place(path, std::string_view(subject.other).substr(at), at, false);
      break;
    case Change::kReplace: {
      const std::string beside = path + ".new";
      write_in_place(beside, subject.other, 0, true);
      fs::rename(beside, path);
      break;
    }
    case Change::kEmptyAndFill: write_in_place(path, subject.other, 0, true); break;
    case Change::kRemove: fs::remove(path); break;
  }
}

[[noreturn]] void be_the_other(Order& order, const std::vector<Subject>& subjects) {
  for (std::uint32_t seen = 0;;) {
    while (order.asked == seen) std::this_thread::sleep_for(std::chrono::microseconds(20));
    seen = order.asked;
    std::this_thread::sleep_for(std::chrono::microseconds(order.microseconds));
    change(subjects[order.subject], static_cast<Change>(order.change.load()), order.random);
    order.done = seen;
  }
}

class Trial {
 public:
  Trial(fs::path dir, unsigned seed) : dir_(std::move(dir)), random_(seed) {
    make(dir_ / "other", 2);
    make(dir_ / "now", 1);
    for (const char* name : {"weights.pt", "model.safetensors"})
      add(dir_ / "now" / name, dir_ / "other" / name);
    // Files of a save carry its id: their counterparts are those of the same place in the order.
    const std::vector<fs::path> mine = files_in(dir_ / "now/run"), theirs = files_in(dir_ / "other/run");
    require(mine.size() == theirs.size(), "two saves of one state have as many files");
    for (std::size_t i = 0; i < mine.size(); ++i) add(mine[i], theirs[i]);
    whole_ = load_into_new(dir_ / "now/run");
    require(is_right(whole_.find("large")->get<Tensor>()), "what was loaded is not what was saved");
  }

  void run(int rounds) {
    start();
    for (int i = 0; i < rounds; ++i) round(i);
    ::kill(other_, SIGKILL);
    ::waitpid(other_, nullptr, 0);
    fmt::print(R"({{"rounds": {}, "right": {}, "errors": {}, "wrong_where_nothing_checks": {}}})"
               "\n",
               rounds, right_, errors_, wrong_);
  }

 private:
  void make(const fs::path& at, int version) {
    fs::create_directories(at);
    SaveOptions options;
    options.write.files_per_rank = 2;
    save(state_of(version), at / "run", options);
    convert(at / "run", at / "weights.pt");
    ConvertOptions tensors;
    tensors.skip_objects = true;
    convert(at / "run", at / "model.safetensors", tensors);
  }

  static std::vector<fs::path> files_in(const fs::path& dir) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(dir)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  void add(const fs::path& path, const fs::path& other) {
    subjects_.push_back({path.string(), read_all(*open_file(path)), read_all(*open_file(other))});
  }

  void start() {
    void* shared = ::mmap(nullptr, sizeof(Order), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(shared != MAP_FAILED, "no shared memory");
    order_ = new (shared) Order;
    other_ = ::fork();
    if (other_ == 0) be_the_other(*order_, subjects_);
  }

  // The operation takes about as long as the last one of its kind did: the change comes in its middle.
  void round(int number) {
    const int kind = number % 5;
    std::chrono::duration<double>& took = took_[kind];
    order_->subject = static_cast<std::uint32_t>(pick_subject(kind));
    order_->change = static_cast<std::uint32_t>(random_() % kChanges);
    // Early rather than late: what has been read already cannot change any more.
    const double when = std::uniform_real_distribution<>(0, 0.8)(random_);
    order_->microseconds = static_cast<std::uint32_t>(1e6 * took.count() * when * when);
    order_->random = random_();
    const std::uint32_t asked = ++order_->asked;
    const auto begin = Clock::now();
    try {
      ++(operate(kind) ? right_ : wrong_);
    } catch (const Error& e) {
      require(e.code() != ErrorCode::kInternal, e.what());
      ++errors_;
    }
    took = 0.8 * took + 0.2 * (Clock::now() - begin);
    while (order_->done != asked) std::this_thread::sleep_for(std::chrono::microseconds(20));
    restore(subjects_[order_->subject]);
  }

  std::size_t pick_subject(int kind) {
    if (kind == 3) return 0;  // the torch.save file
    if (kind == 4) return 1;  // the safetensors file
    return 2 + random_() % (subjects_.size() - 2);
  }

  static void restore(const Subject& subject) {
    fs::remove(subject.path);
    write_in_place(subject.path, subject.now, 0, true);
  }

  static bool is_right(const Tensor& large) { return Value(large) == Value(numbered({kShape}, 1)); }

  // Whether it gave the right bytes.
  bool operate(int kind) {
    const std::string run = dir_ / "now/run";
    if (kind == 0) {
      LoadOptions options;
      options.read.verify = Verify::kFull;
      const StateDict state = load_into_new(run, std::nullopt, options);
      require(state == whole_, "a load that checks gave wrong bytes");
      return true;
    }
    if (kind == 1) {
      if (!verify(run).ok()) throw Error(ErrorCode::kCorrupt, "verify has found it");
      return true;
    }
    if (kind == 2) {
      const fs::path to = dir_ / "made.pt";
      fs::remove(to);
      ConvertOptions quick;
      quick.durable = false;
      convert(run, to, quick);
      require(is_right(Checkpoint::open(to)->read("large")), "a conversion gave wrong bytes");
      return true;
    }
    const auto file = Checkpoint::open(dir_ / "now" / (kind == 3 ? "weights.pt" : "model.safetensors"));
    return is_right(file->read("large"));
  }

  fs::path dir_;
  std::mt19937_64 random_;
  std::vector<Subject> subjects_;
  StateDict whole_;  // what an undisturbed load gives
  std::map<int, std::chrono::duration<double>> took_;
  Order* order_ = nullptr;
  pid_t other_ = -1;
  int right_ = 0, errors_ = 0, wrong_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return run_trial("changed_files", fmt::format("seed {}", argv[3]), [&] {
    Trial(argv[1], static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10))).run(std::atoi(argv[2]));
  });
}
