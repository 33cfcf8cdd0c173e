// Saves of four ranks: first ones, overwriting ones, failing ones, in the background, to Hugging Face's
// files.
#include <thread>

#include "cairn/async.h"
#include "cairn/gc.h"
#include "cairn/hugging_face.h"
#include "debris.h"
#include "saved_versions.h"
#include "scenes.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kUnlucky = 2;  // the rank that fails in scenes of failing saves

// Has a tensor that cannot be written.
class UnluckyPlanner final : public DefaultSavePlanner {
 public:
  explicit UnluckyPlanner(bool unlucky) : unlucky_(unlucky) {}
  Value resolve_data(const WriteItem& item) override {
    if (unlucky_ && item.index.fqn == "optim.exp_avg")
      throw Error(ErrorCode::kInvalidArgument, "this tensor cannot be written");
    return DefaultSavePlanner::resolve_data(item);
  }

 private:
  bool unlucky_;
};

enum class Way { kPlain, kFailing, kBackground, kThreads };

class SaveScene final : public Scene {
 public:
  SaveScene(std::string name, const std::string& dir, bool overwrites, Way way)
      : name_(std::move(name)), dir_(dir + "/" + name_), overwrites_(overwrites), way_(way) {}

  std::string name() const override { return name_; }
  int ranks() const override { return way_ == Way::kThreads ? 1 : kRanks; }
  bool fails() const override { return way_ == Way::kFailing || way_ == Way::kThreads; }

  void prepare() override {
    if (!overwrites_) {
      fs::remove_all(dir_);
      at_ = std::nullopt;
    } else {
      if (!at_) save_undisturbed();
      leave_debris(dir_);
    }
    files_ = files_in(dir_);
  }

  void run(Group& group) override {
    if (way_ == Way::kThreads) return run_ranks(kRanks, [&](Group& all) { save_once(all); });
    save_once(group);
  }

  void check(const Outcome& outcome) override {
    const std::optional<int> found = version_in(dir_);
    require(found == at_ || found == next_, "neither the old nor the new checkpoint");
    require(!outcome.any_succeeded() || found == next_, "a rank said the save was done, and it is not");
    require(!fails() || found == at_, "a save that failed has changed the checkpoint");
    // What cleans up may fail too, and an empty lock is in nobody's way.
    const bool cleans_up = outcome.action == "error" && outcome.point != "abandon.begun" &&
                           outcome.point != "file.before_open" && outcome.point != "file.before_remove" &&
                           !outcome.point.starts_with("lock.");
    if (cleans_up && found == at_ && !outcome.any_succeeded())
      require(files_in(dir_) <= files_, "a save that failed left files behind");
    at_ = found;
    ++next_;
    save_undisturbed();
  }

 private:
  void save_once(Group& group) {
    UnluckyPlanner planner(fails() && group.rank() == kUnlucky);
    if (way_ != Way::kBackground) return save_version(group, dir_, next_, seconds(30), &planner);
    AsyncOptions options;
    options.save.group = &group;
    options.save.deadline = seconds(30);
    AsyncSaver saver(options);
    (void)saver.async_save(state_of(group.rank(), next_), dir_).wait();
  }

  void save_undisturbed() {
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, next_); });
    ranks.require_success("the next save");
    at_ = next_++;
    require_saved(dir_, *at_);
  }

  std::string name_, dir_;
  bool overwrites_;
  Way way_;
  std::optional<int> at_;  // the version that is there
  std::ptrdiff_t files_ = 0;
  int next_ = 1;
};

// Every rank saves for itself. One of them is slow, so that it is known who completes the set.
class RankLocalScene final : public Scene {
 public:
  // `over_ranks`: what is replaced was saved so too; otherwise by all ranks together.
  RankLocalScene(std::string name, const std::string& dir, bool over_ranks)
      : name_(std::move(name)), dir_(dir + "/" + name_), over_ranks_(over_ranks) {}

  std::string name() const override { return name_; }
  int ranks() const override { return kRanks; }

  void prepare() override {
    ForkedRanks ranks(kRanks, [&](Group& group) {
      save_version(group, dir_, next_, seconds(30), nullptr, /*collectives=*/!over_ranks_);
    });
    ranks.require_success("an undisturbed save");
    at_ = next_++;
    require_there(at_);
  }

  void run(Group& group) override {
    SlowPlanner planner(group.rank() == 1);
    save_version(group, dir_, next_, seconds(30), &planner, /*collectives=*/false);
  }

  void check(const Outcome& outcome) override {
    const int found = version_of(load_into_new(dir_));
    require(found == at_ || found == next_, "neither the old nor the new checkpoint");
    require(!outcome.any_succeeded() || found == next_, "a rank said the save was done, and it is not");
    ++next_;
    ForkedRanks ranks(kRanks, [&](Group& group) { run(group); });
    ranks.require_success("the next save");
    require_there(next_++);
    require(files_in(dir_) == 3 * kRanks || outcome.action == "sleep", "something of a dead save is left");
  }

 private:
  class SlowPlanner final : public DefaultSavePlanner {
   public:
    explicit SlowPlanner(bool slow) : DefaultSavePlanner(planning()), slow_(slow) {}
    SavePlan finish_plan(SavePlan central) override {
      if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return DefaultSavePlanner::finish_plan(std::move(central));
    }

   private:
    static SavePlannerOptions planning() {
      SavePlannerOptions options;
      options.global.allow_partial = true;
      return options;
    }
    bool slow_;
  };

  void require_there(int version) const {
    require(version_of(load_into_new(dir_)) == version, "an undisturbed save is not there");
  }

  std::string name_, dir_;
  bool over_ranks_;
  int at_ = 0;
  int next_ = 1;
};

// Safetensors files have no manifest: a load of some of them must fail, not give something else.
class HuggingFaceScene final : public Scene {
 public:
  HuggingFaceScene(std::string name, const std::string& dir, bool failing)
      : name_(std::move(name)), dir_(dir + "/" + name_), failing_(failing) {}

  std::string name() const override { return name_; }
  int ranks() const override { return kRanks; }
  bool fails() const override { return failing_; }
  // Who makes a writer does so before the save: what fails there, the other ranks do not hear of.
  void prepare() override {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  void run(Group& group) override {
    UnluckyPlanner planner(failing_ && group.rank() == kUnlucky);
    save_once(group, &planner);
  }

  void check(const Outcome& outcome) override {
    require(is_there() || !outcome.any_succeeded(), "a rank said the save was done, and it is not");
    ForkedRanks ranks(kRanks, [&](Group& group) { save_once(group, nullptr); });
    ranks.require_success("the next save");
    require(is_there(), "the next save is not there");
    gc(dir_);
    require(files_in(dir_) == kRanks, "something of a dead save is left");
  }

 private:
  static StateDict tensors_of(int rank) {
    StateDict state;
    for (int i = 0; i < 3; ++i)
      state.set(fmt::format("large{}", i), part_of(numbered({1024, 256}, i), rows_over(kRanks), rank));
    state.set("optim.exp_avg", part_of(numbered({129, 40}, 3), rows_over(kRanks), rank));
    return state;
  }

  void save_once(Group& group, SavePlanner* planner) const {
    HfWriteOptions write;
    write.sharded = true;
    const auto writer = hf_writer(posix_file_system(dir_, {.create = true}), write);
    SaveOptions options;
    options.group = &group;
    options.deadline = seconds(30);
    options.planner = planner;
    options.writer = writer.get();
    save(tensors_of(group.rank()), dir_, options);
  }

  bool is_there() const {
    if (!fs::exists(dir_)) return false;
    StateDict state;
    for (int i = 0; i < 3; ++i)
      state.set(fmt::format("large{}", i), Value(Tensor::empty(DType::kInt32, {1024, 256})));
    state.set("optim.exp_avg", Value(Tensor::empty(DType::kInt32, {129, 40})));
    const auto reader = hf_reader(std::shared_ptr<const FileSystem>(posix_file_system(dir_)));
    LoadOptions options;
    options.reader = reader.get();
    try {
      load(state, dir_, options);
    } catch (const Error&) {
      return false;
    }
    for (int i = 0; i < 3; ++i)
      require(*state.find(fmt::format("large{}", i)) == Value(numbered({1024, 256}, i)),
              "a load gave something else than was saved");
    return true;
  }

  std::string name_, dir_;
  bool failing_;
};

}  // namespace

std::vector<std::unique_ptr<Scene>> save_scenes(const std::string& dir) {
  std::vector<std::unique_ptr<Scene>> scenes;
  scenes.push_back(std::make_unique<SaveScene>("first-save", dir, false, Way::kPlain));
  scenes.push_back(std::make_unique<SaveScene>("overwrite", dir, true, Way::kPlain));
  scenes.push_back(std::make_unique<SaveScene>("failing-save", dir, true, Way::kFailing));
  scenes.push_back(std::make_unique<SaveScene>("failing-threads", dir, true, Way::kThreads));
  scenes.push_back(std::make_unique<SaveScene>("background-save", dir, true, Way::kBackground));
  scenes.push_back(std::make_unique<RankLocalScene>("ranks-over-all", dir, false));
  scenes.push_back(std::make_unique<RankLocalScene>("ranks-over-ranks", dir, true));
  scenes.push_back(std::make_unique<HuggingFaceScene>("hugging-face", dir, false));
  scenes.push_back(std::make_unique<HuggingFaceScene>("failing-hugging-face", dir, true));
  return scenes;
}

}  // namespace cairn
