// os_faults DIR SEED ERRORS [save|overwrite|load|open|verify|gc|convert|reluctant]: system calls that fail.
//
// Every call that the operating system gets for a save into a new directory, a save over a checkpoint, a
// load, Checkpoint::open, verify(), a clean-up and a conversion fails in its turn: the n-th alone, and the
// n-th and all that follow, with each of ERRORS (EIO,ENOSPC). What was asked for must be done, whole, or be
// refused with an error of ours that says what failed where and carries errno. The checkpoint that was there
// is there, no descriptor is left open, and the next save works. Then (reluctant) reads and writes move one
// byte, half or a random part of what they are asked for, and calls are interrupted: everything must be as if
// nothing had happened, byte for byte.
//
// Prints one JSON object; exits 1 at the first broken promise. Whatever hangs for two minutes is killed.
// Which call the n-th is depends on how the threads run.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cairn/convert.h"
#include "cairn/gc.h"
#include "cairn/verify.h"
#include "debris.h"
#include "failing_calls.h"
#include "small_checkpoint.h"
#include "storage/file_names.h"
#include "trace.h"
#include "trainer_version.h"

namespace {

using namespace cairn;
using namespace cairn::trial;
namespace fs = std::filesystem;
using Counts = nlohmann::ordered_json;

constexpr int kOld = 1, kNew = 2, kNext = 3;
constexpr unsigned kLongest = 120;  // seconds that one action may take
const std::string kPath = "run/step";
const Cut kCut{2, 1};

const std::map<std::string, int> kErrors = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},
                                            {"ESTALE", ESTALE}, {"EROFS", EROFS},   {"EMFILE", EMFILE}};

std::size_t open_descriptors() {
  const auto all = fs::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Whether an error says where it comes from: a file, and the system's own number.
bool is_explained(const Error& e, int os_error) {
  const auto explained = [&](const Error& one) {
    // A server answers so for a lock that somebody has removed, and gc says that in words.
    if (os_error == ESTALE && one.message().find("somebody has removed this one") != std::string::npos)
      return true;
    return one.os_error() == os_error && !one.file().empty() && !one.message().empty();
  };
  const auto* const together = dynamic_cast<const CheckpointError*>(&e);
  if (together == nullptr) return explained(e);
  for (const auto& [rank, failure] : together->failures())
    if (explained(failure)) return true;
  return false;
}

// Something the library does.
struct Action {
  std::string name;
  Tree before;
  std::function<void()> act;                  // throws as the library does
  std::function<void(bool succeeded)> check;  // that what it says is so
};

class Harness {
 public:
  Harness(std::string directory, std::uint64_t seed)
      : work_(directory + "/work"), source_(directory + "/source"), at_(work_ + "/" + kPath), seed_(seed) {
    fs::remove_all(source_);
    save_version(source_, kNew, kCut);
    fs::remove_all(work_);
    save_version(at_, kOld, kCut);
    with_old_ = read_tree(work_);
    leave_debris(at_);
    with_debris_ = read_tree(work_);
    bytes_checked_ = verify(at_).bytes_checked;
  }

  void run(const std::vector<int>& errors, const std::string& only) {
    Counts counts;
    for (const Action& action : actions())
      if (only.empty() || only == action.name) counts[action.name] = fail_each(action, errors);
    if (only.empty() || only == "reluctant") counts["reluctant"] = be_reluctant();
    if (counts.empty()) throw std::invalid_argument("no such thing to try: " + only);
    fmt::print("{}\n", counts.dump());
  }

 private:
  std::vector<Action> actions() {
    const auto is_there = [this](std::optional<int> before, bool succeeded) {
      const auto found = fs::exists(at_) ? version_in(at_) : std::nullopt;
      require(found == kNew || (!succeeded && found == before), "neither the old nor the new checkpoint");
    };
    const auto stays = [this](bool) { require(version_in(at_) == kOld, "the checkpoint is another"); };
    const auto save_new = [this] { save_version(at_, kNew, kCut); };
    return {
        {"save", Tree(), save_new, [=](bool succeeded) { is_there(std::nullopt, succeeded); }},
        {"overwrite", with_old_, save_new, [=](bool succeeded) { is_there(kOld, succeeded); }},
        {"load", with_old_, [this] { require_trainer(load_into_new(at_), kOld); }, stays},
        {"open", with_old_, [this] { open_and_read(); }, stays},
        {"verify", with_old_, [this] { verify_all(); }, stays},
        {"gc", with_debris_, [this] { gc(at_); },
         [=, this](bool succeeded) {
           stays(succeeded);
           if (succeeded) check_clean(*posix_file_system(at_), kCut);
         }},
        {"convert", Tree(), [this] { convert(source_, work_ + "/run/out.pt", {.threads = 1}); },
         [this](bool succeeded) { check_converted(succeeded); }},
    };
  }

  void open_and_read() {
    const auto checkpoint = Checkpoint::open(at_);
    require(
        Value(checkpoint->read("model.w")) == *whole_trainer_state(kOld).find("model")->get<Dict>().find("w"),
        "another tensor is read");
    require(checkpoint->files().size() == static_cast<std::size_t>(kCut.data_files()) + 2,
            "a file is missing");
  }

  // What it cannot read is in the report, and no error.
  void verify_all() {
    const VerifyReport report = verify(at_);
    if (report.ok()) return require(report.bytes_checked == bytes_checked_, "verify() passed something over");
    for (const Problem& problem : report.problems) {
      require(problem.kind == ProblemKind::kUnreadable || problem.kind == ProblemKind::kMissing,
              "verify() finds fault with what is whole: " + to_string(problem));
    }
  }

  void check_converted(bool succeeded) {
    const std::string file = work_ + "/run/out.pt";
    require(fs::exists(file) || !succeeded, "the conversion succeeded, and nothing is there");
    if (fs::exists(file)) require(verify(file).ok(), "the file of a conversion is not whole");
    if (!succeeded && fs::exists(work_ + "/run")) {
      for (const auto& entry : fs::directory_iterator(work_ + "/run"))
        require(entry.path() == file || is_partial(entry.path().filename().string()), "something is left");
    }
  }

  void lay_out(const Tree& tree) {
    fs::remove_all(work_);
    write_tree(tree, work_);
  }

  Counts fail_each(const Action& action, const std::vector<int>& errors) {
    lay_out(action.before);
    NthFails none(0, false, 0);
    {
      const OsWatch watch(work_, none);
      action.act();
    }
    std::uint64_t runs = 0, failed = 0;
    // A few more than were counted: threads may make it a call more or less.
    for (std::uint64_t n = 1; n <= none.calls() + 3; ++n) {
      for (const int os_error : errors) {
        for (const bool for_ever : {false, true}) {
          failed += fail_nth(action, n, for_ever, os_error) ? 1 : 0;
          ++runs;
        }
      }
    }
    return {{"calls", none.calls()}, {"runs", runs}, {"failed", failed}};
  }

  // Whether the action failed.
  bool fail_nth(const Action& action, std::uint64_t nth, bool for_ever, int os_error) {
    lay_out(action.before);
    const std::size_t descriptors = open_descriptors();
    NthFails faults(nth, for_ever, os_error);
    ::alarm(kLongest);
    try {
      const bool failed = fails(action, faults, os_error);
      action.check(!failed);
      require(open_descriptors() == descriptors, "a descriptor is left open");
      if (action.name != "convert") check_next_save();
      ::alarm(0);
      return failed;
    } catch (const std::exception& e) {
      throw BrokenPromise(fmt::format("{}: call {}{}, {}: {}: {}", action.name, nth,
                                      for_ever ? " and all that follow" : "", faults.first_hit(),
                                      ::strerrorname_np(os_error), e.what()));
    }
  }

  bool fails(const Action& action, NthFails& faults, int os_error) {
    const OsWatch watch(work_, faults);
    try {
      action.act();
      return false;
    } catch (const Error& e) {
      require(faults.fired() > 0, fmt::format("fails without a reason: {}", e.what()));
      require(is_explained(e, os_error), fmt::format("does not say what failed: {}", e.what()));
      return true;
    }
  }

  void check_next_save() {
    save_version(at_, kNext, kCut);
    require(version_in(at_) == kNext, "the next save is not there");
    check_clean(*posix_file_system(at_), kCut);
  }

  Counts be_reluctant() {
    std::uint64_t runs = 0, fired = 0;
    for (const Action& action : actions()) {
      lay_out(action.before);
      action.act();
      const std::vector<std::string> usual = data_files();
      for (const Reluctant::Way way : kReluctantWays) {
        Reluctant system(way, seed_ + runs);
        ::alarm(kLongest);
        try {
          lay_out(action.before);
          {
            const OsWatch watch(work_, system);
            action.act();
          }
          action.check(true);
          require(data_files() == usual, "other bytes were written");
        } catch (const std::exception& e) {
          throw BrokenPromise(
              fmt::format("{}, reluctant in way {}: {}", action.name, static_cast<int>(way), e.what()));
        }
        ::alarm(0);
        require(system.fired() > 0, "nothing was reluctant");
        fired += system.fired();
        ++runs;
      }
    }
    return {{"runs", runs}, {"calls", fired}};
  }

  // The bytes of the files that do not depend on the save's id, by name without it.
  std::vector<std::string> data_files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(work_)) {
      const std::string name = entry.path().filename().string();
      const bool data = entry.is_regular_file() && (name.ends_with(".distcp") || name.ends_with(".pt"));
      if (data) files[name.substr(0, name.find('.'))] = *read_tree(entry.path().parent_path()).find(name);
    }
    std::vector<std::string> all;
    for (auto& [name, bytes] : files) all.push_back(std::move(bytes));
    return all;
  }

  const std::string work_, source_, at_;
  const std::uint64_t seed_;
  Tree with_old_, with_debris_;
  std::uint64_t bytes_checked_ = 0;
};

std::vector<int> parse_errors(const std::string& list) {
  std::vector<int> errors;
  for (const std::string& name : parts_of(list)) errors.push_back(kErrors.at(name));
  return errors;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) return 2;
  return run_trial("os_faults", fmt::format("seed {}", argv[2]), [&] {
    Harness(watched_directory(argv[1]), std::strtoull(argv[2], nullptr, 10))
        .run(parse_errors(argv[3]), argc > 4 ? argv[4] : "");
  });
}
