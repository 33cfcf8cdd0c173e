// power_loss DIR STATES SEED [save|overwrite|gc|convert]: what a loss of power leaves.
//
// Saves, clean-ups and conversions run in DIR on real files, and all they ask of the system is recorded. From
// that every state of the disk is made that a loss of power could have left (crash_states.h); each is loaded
// and compared byte by byte. It must hold nothing, or the old or the new checkpoint, whole; once success was
// reported, the new one. Many are also verified, cleaned up, and saved over.
//
//   save        into a directory that is not there yet
//   overwrite   of a checkpoint of ours, of one of stock PyTorch, among the files of a dead save, and of a
//               directory of safetensors files
//   gc          of what a dead save left, beside a checkpoint or alone
//   convert     from DCP to DCP, torch.save, safetensors, and a directory with an index; new and overwriting
//
// About STATES states, the same number for each kind, all different. Prints one JSON object; exits 1 at the
// first broken promise, says what was lost, and leaves that state in DIR/broken. The seed repeats everything
// but the order in which the threads of a save come to the disk.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cairn/convert.h"
#include "cairn/gc.h"
#include "power_checks.h"

namespace {

using namespace cairn;
using namespace cairn::trial;
namespace fs = std::filesystem;

constexpr int kOld = 1, kNew = 2;
const std::string kPath = "run/step";  // of the checkpoint in the directory under trial
const std::string kMetadata = kPath + "/.metadata";

// One recorded action, and what must be so wherever it was cut short.
struct Run {
  Trace trace;
  std::function<void(const CrashState&, Tally&)> check;
};

class Harness {
 public:
  Harness(std::string directory, std::uint64_t seed)
      : work_(directory + "/work"),
        scratch_(directory + "/scratch"),
        source_(directory + "/source"),
        broken_(directory + "/broken"),
        random_(seed) {
    fs::remove_all(broken_);
    fs::remove_all(source_);
    save_version(source_, kNew, {1, 1});
  }

  void run(std::uint64_t states, const std::string& only) {
    using Maker = Run (Harness::*)();
    const std::vector<std::pair<std::string, Maker>> kinds = {{"save", &Harness::first_save},
                                                              {"overwrite", &Harness::overwrite},
                                                              {"gc", &Harness::clean_up},
                                                              {"convert", &Harness::conversion}};
    std::uint64_t left = only.empty() ? kinds.size() : 1;
    std::uint64_t all = 0;
    nlohmann::ordered_json counts = {{"states", 0}};
    for (const auto& [name, make] : kinds) {
      if (!only.empty() && only != name) continue;
      const Tally tally = try_kind((states - all) / left--, [&, make = make] { return (this->*make)(); });
      all += tally.at("states");
      counts[name] = tally;
    }
    if (counts.size() == 1) throw std::invalid_argument("no such thing to try: " + only);
    counts["states"] = all;
    fmt::print("{}\n", counts.dump());
  }

 private:
  // Several runs, each cut otherwise, until there are enough states.
  Tally try_kind(std::uint64_t states, const std::function<Run()>& make) {
    Tally tally{{"states", 0}};
    turn_ = 0;
    while (tally["states"] < states) {
      const Run run = make();
      const std::uint64_t most =
          std::min(states - tally["states"], std::max<std::uint64_t>(states / 16, 250));
      const StateCounts counts = for_each_crash_state(
          run.trace, most, random_(), [&](const CrashState& state) { look(run, state, tally); });
      ++tally["runs"];
      tally["steps"] += counts.steps;
      tally["points"] += counts.points;
      tally["exhausted_points"] += counts.exhausted;
      tally["most_undurable"] = std::max<std::uint64_t>(tally["most_undurable"], counts.most_undurable);
    }
    return tally;
  }

  void look(const Run& run, const CrashState& state, Tally& tally) {
    try {
      run.check(state, tally);
    } catch (const std::exception& e) {
      write_tree(state.tree, broken_);
      throw BrokenPromise(fmt::format("{}\n{}", e.what(), story_of(run.trace, state)));
    }
  }

  Cut any_cut() {
    const auto ranks = static_cast<int>(1 + random_() % 3);
    const auto files = static_cast<int>(1 + random_() % 2);
    return {ranks, files, random_() % 4 == 0, random_() % 4 != 0};
  }

  // Lays the tree out, and records what is done to it.
  Trace record(const Tree& before, const std::function<void(Recorder&)>& act) {
    fs::remove_all(work_);
    write_tree(before, work_);
    Recorder recorder(work_);
    {
      const OsWatch watch(work_, recorder);
      act(recorder);
    }
    recorder.report();
    return recorder.finish();
  }

  Trace record_save(const Tree& before, int version) {
    const Cut cut = any_cut();
    return record(before, [&](Recorder& recorder) {
      save_version(work_ + "/" + kPath, version, cut, [&] { recorder.report(); });
    });
  }

  Run dcp_run(Trace trace, const Expected& expected) {
    return {std::move(trace), [this, expected](const CrashState& state, Tally& tally) {
              check_checkpoint(state, expected, scratch_, tally);
            }};
  }

  Tree with_version(int version, bool stock) {
    fs::remove_all(work_);
    save_version(work_ + "/" + kPath, version, any_cut());
    if (stock) make_stock(*posix_file_system(work_ + "/" + kPath));
    return read_tree(work_);
  }

  // What one or two saves left that lost their power, beside a checkpoint or alone.
  Tree with_debris() {
    Tree tree = debris_++ % 3 == 0 ? Tree() : with_version(kOld, false);
    const bool alone = tree.find(kMetadata) == nullptr;
    for (std::uint64_t dead = 1 + random_() % 2; dead > 0; --dead) {
      std::vector<Tree> left;
      for_each_crash_state(record_save(tree, kNew), 200, random_(), [&](const CrashState& state) {
        const bool none = state.tree.find(kMetadata) == nullptr;
        if (none == alone && state.tree.list(kPath) != nullptr) left.push_back(state.tree);
      });
      const auto files = [](const Tree& at) { return at.list(kPath)->size(); };
      tree = random_() % 3 == 0
                 ? left.at(random_() % left.size())
                 : *std::max_element(left.begin(), left.end(),
                                     [&](const Tree& a, const Tree& b) { return files(a) < files(b); });
    }
    return tree;
  }

  Run first_save() { return dcp_run(record_save(Tree(), kNew), {kPath, std::nullopt, kNew}); }

  Run overwrite() {
    const std::uint64_t kind = turn_++ % 5;
    if (kind == 4) return overwrite_hugging_face();
    if (kind == 0) {
      const Tree before = with_debris();
      const auto old = version_in(in_memory(before, kPath));
      return dcp_run(record_save(before, kNew + 1), {kPath, old, kNew + 1});
    }
    const bool stock = kind == 1;
    return dcp_run(record_save(with_version(kOld, stock), kNew), {kPath, kOld, kNew, !stock});
  }

  // The new files have other names than the old ones: they are three, and those were two.
  Run overwrite_hugging_face() {
    fs::remove_all(work_);
    save_hugging_face(work_ + "/" + kPath, kOld, 2);
    const Tree before = read_tree(work_);
    Trace trace = record(before, [&](Recorder&) { save_hugging_face(work_ + "/" + kPath, kNew, 3); });
    return {std::move(trace), [before, after = read_tree(work_)](const CrashState& state, Tally& tally) {
              check_indexed(state, kPath, before, after, tally);
            }};
  }

  Run clean_up() {
    const Tree before = with_debris();
    const auto version = version_in(in_memory(before, kPath));
    Run run = dcp_run(record(before, [&](Recorder&) { gc(work_ + "/" + kPath); }), {kPath, version, version});
    run.check = [check = run.check](const CrashState& state, Tally& tally) {
      check(state, tally);
      check_cleaned(state, kPath);
    };
    return run;
  }

  Trace record_conversion(const Tree& before, const std::string& to, const ConvertOptions& options) {
    return record(before, [&](Recorder&) { convert(source_, work_ + "/" + to, options); });
  }

  Run conversion() {
    ConvertOptions options;
    options.threads = 1;
    options.skip_objects = true;
    const std::uint64_t kind = turn_++ % 4;
    options.overwrite = turn_ / 4 % 2 == 1;
    if (kind == 0) return convert_to_dcp(options);
    if (kind == 1) return convert_to_index(options);
    return convert_to_file(kind == 2 ? "run/out.pt" : "run/out.safetensors", options);
  }

  Run convert_to_dcp(ConvertOptions options) {
    options.ranks = static_cast<int>(1 + random_() % 2);
    Expected expected{kPath, std::nullopt, kNew};
    if (options.overwrite) expected.before = kOld;
    const Tree before = options.overwrite ? with_version(kOld, false) : Tree();
    return dcp_run(record_conversion(before, kPath, options), expected);
  }

  Run convert_to_file(const std::string& to, const ConvertOptions& options) {
    Tree before;
    if (options.overwrite) {
      before.directories[0]["run"] = 1;
      before.directories[1][to.substr(4)] = 2;
      before.files[2] = std::make_shared<const std::string>(20000, 'o');
    }
    Trace trace = record_conversion(before, to, options);
    const FileBytes after = read_tree(work_).find(to);
    return {std::move(trace), [=](const CrashState& state, Tally& tally) {
              check_file(state, to, before.find(to), after, tally);
            }};
  }

  Run convert_to_index(ConvertOptions options) {
    options.shards = 2;
    Trace trace = record_conversion(Tree(), kPath, options);
    return {std::move(trace), [after = read_tree(work_)](const CrashState& state, Tally& tally) {
              check_indexed(state, kPath, Tree(), after, tally);
            }};
  }

  const std::string work_, scratch_, source_, broken_;
  std::mt19937_64 random_;
  std::uint64_t turn_ = 0;    // which of several actions is next
  std::uint64_t debris_ = 0;  // the same of what they begin with
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) return 2;
  return run_trial("power_loss", fmt::format("seed {}", argv[3]), [&] {
    Harness(watched_directory(argv[1]), std::strtoull(argv[3], nullptr, 10))
        .run(std::strtoull(argv[2], nullptr, 10), argc > 4 ? argv[4] : "");
  });
}
