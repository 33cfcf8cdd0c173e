// What people do with checkpoints, each on a small one in a directory.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

#include "cairn/async.h"
#include "cairn/cairn.h"
#include "cairn/convert.h"
#include "cairn/gc.h"
#include "cairn/verify.h"
#include "damage_places.h"
#include "failing_memory.h"
#include "operation.h"
#include "trainer_version.h"

namespace cairn {

namespace fs = std::filesystem;

// The version of a checkpoint of one rank's trainer_state that is whole; throws when it is not.
inline int whole_version(const fs::path& dir) { return trainer_version(load_into_new(dir.string())); }

inline SaveOptions quick_save() {
  SaveOptions options;
  options.write.durable = false;  // as many allocations, and no waiting for a disk
  options.write.files_per_rank = 2;
  return options;
}

// A save over version 1, or into an empty place.
class SaveOperation final : public Operation {
 public:
  using Save = std::function<void(const std::string& dir)>;  // of version 2
  SaveOperation(std::string name, fs::path dir, bool overwrites, Save save)
      : name_(std::move(name)), dir_(std::move(dir)), overwrites_(overwrites), save_(std::move(save)) {}

  const std::string& name() const override { return name_; }
  void prepare() override {
    if (!overwrites_) {
      fs::remove_all(dir_);
    } else if (!fs::exists(dir_ / ".metadata") || whole_version(dir_) != 1) {
      cairn::save(trainer_state(0, 1, 1), dir_.string(), quick_save());
    }
  }
  void run() override { save_(dir_.native()); }
  void require_kept(bool succeeded) override {
    const bool there = fs::exists(dir_ / ".metadata");
    const std::optional<int> version = there ? std::optional(whole_version(dir_)) : std::nullopt;
    if (succeeded) require(version == 2, "a save that succeeded is not there");
    if (!succeeded && overwrites_) require(version == 1 || version == 2, "the old checkpoint is gone");
    if (!there && !fs::exists(dir_)) return;
    // What is left of it is known for what it is.
    cairn::gc(dir_.string());
    const auto files = std::distance(fs::directory_iterator(dir_), {});
    require(files == (there ? 4 : 0), fmt::format("{} files are left after gc", files));
  }
  // Several threads that throw at once with no memory at all can use up what the C++ runtime keeps for
  // exceptions; it ends the process then.
  bool has_for_ever() const override { return name_ != "ranks"; }
  // Ranks that cannot be told that one of them failed wait for it until the deadline.
  bool expects(const Error& e) const override {
    return Operation::expects(e) || e.code() == ErrorCode::kTimeout || e.code() == ErrorCode::kCancelled;
  }

 private:
  const std::string name_;
  const fs::path dir_;
  const bool overwrites_;
  const Save save_;
};

// Something that only reads.
class ReadOperation final : public Operation {
 public:
  ReadOperation(std::string name, std::function<void()> read, std::function<void()> check)
      : name_(std::move(name)), read_(std::move(read)), check_(std::move(check)) {}
  const std::string& name() const override { return name_; }
  void run() override { read_(); }
  void require_kept(bool succeeded) override {
    if (succeeded) check_();
  }

 private:
  const std::string name_;
  const std::function<void()> read_;
  const std::function<void()> check_;
};

inline std::string listed(const fs::path& path) {
  if (!fs::is_directory(path)) return path.filename().string();
  std::string names = "directory";
  for (const auto& entry : fs::directory_iterator(path)) names += " " + entry.path().filename().string();
  return names;
}

// To a file or a directory beside the source.
class ConvertOperation final : public Operation {
 public:
  ConvertOperation(std::string name, fs::path from, fs::path to)
      : name_(std::move(name)), from_(std::move(from)), to_(std::move(to)) {
    options_.durable = false;
    options_.skip_objects = true;
    options_.threads = 2;
  }
  const std::string& name() const override { return name_; }
  void prepare() override { fs::remove_all(to_); }
  void run() override { convert(from_.native(), to_.native(), options_); }
  void require_kept(bool succeeded) override {
    require(!succeeded || fs::exists(to_), "a conversion that succeeded has no destination");
    // Without any memory a directory cannot be cleared; what is left in it is no checkpoint, and gc knows it.
    const bool could_clear =
        !failing_memory.for_ever || fs::exists(to_ / ".metadata") || !fs::is_directory(to_);
    require(succeeded || !could_clear || !fs::exists(to_),
            "a conversion that failed left its destination: " + listed(to_));
    if (succeeded)
      require(Value(Checkpoint::open(to_.string())->read("optim.exp_avg")) == Value(numbered({129, 40}, 4)),
              "a conversion gave wrong values");
    const auto beside = std::distance(fs::directory_iterator(to_.parent_path()), {});
    require(beside == 1 + (fs::exists(to_) ? 1 : 0), "a conversion left something beside its destination");
  }

 private:
  const std::string name_;
  const fs::path from_, to_;
  ConvertOptions options_;
};

// Removes what a dead save left; it may fail and leave some of it.
class GcOperation final : public Operation {
 public:
  explicit GcOperation(fs::path dir) : dir_(std::move(dir)) {}
  const std::string& name() const override { return name_; }
  void prepare() override {
    if (!fs::exists(dir_)) save(trainer_state(0, 1, 1), dir_.string(), quick_save());
    for (int i = 0; i < 3; ++i)
      std::ofstream(dir_ / fmt::format("__0_{}.0123456789abcdef0123456789abcdef.distcp", i))
          << "of a dead save";
  }
  void run() override { gc(dir_.native()); }
  void require_kept(bool succeeded) override {
    require(whole_version(dir_) == 1, "gc damaged the checkpoint");
    const auto files = std::distance(fs::directory_iterator(dir_), {});
    require(!succeeded || files == 4, fmt::format("{} files are left after gc", files));
  }

 private:
  const std::string name_ = "gc";
  const fs::path dir_;
};

// States are made beforehand: they are the caller's, and so is the memory for them.
class TwoRanks {
 public:
  void operator()(const std::string& dir) const {
    run_ranks(2, [&](Group& group) {
      SaveOptions options = how_;
      options.group = &group;
      save(states_[static_cast<std::size_t>(group.rank())], dir, options);
    });
  }

 private:
  static SaveOptions how() {
    SaveOptions options = quick_save();
    options.write.files_per_rank = 1;
    options.deadline = std::chrono::milliseconds(300);
    return options;
  }
  std::array<StateDict, 2> states_ = {trainer_state(0, 2, 2), trainer_state(1, 2, 2)};
  SaveOptions how_ = how();
};

inline void add_saves(Operations& all, const fs::path& folder) {
  const auto add = [&](const char* name, bool overwrites, SaveOperation::Save how) {
    all.push_back(std::make_unique<SaveOperation>(name, folder / name, overwrites, std::move(how)));
  };
  const StateDict state = trainer_state(0, 1, 2);
  const auto plain = [state, how = quick_save()](const std::string& dir) { save(state, dir, how); };
  add("save", false, plain);
  add("overwrite", true, plain);
  add("ranks", true, TwoRanks());
  AsyncOptions options;
  options.save = quick_save();
  add("async", true, [state, options](const std::string& dir) {
    AsyncSaver saver(options);
    saver.async_save(state, dir).wait();
  });
}

inline void add_reads(Operations& all, const fs::path& folder) {
  const std::string dir = (folder / "read").string();
  save(trainer_state(0, 1, 1), dir, quick_save());
  const auto loaded = std::make_shared<StateDict>();
  const auto report = std::make_shared<VerifyReport>();
  all.push_back(std::make_unique<ReadOperation>(
      "load", [=] { *loaded = load_into_new(dir, std::nullopt, {.read = {.threads = 3}}); },
      [=] {
        require_trainer(*loaded, 1);
        *loaded = StateDict();
      }));
  // Memory that runs out is no damage.
  all.push_back(std::make_unique<ReadOperation>(
      "verify", [=] { *report = verify(dir, {.threads = 3}); },
      [=] {
        require(report->ok() && report->items > 0, "verify finds damage where there is none");
        *report = VerifyReport();
      }));
}

inline void add_checkpoint_operations(Operations& all, const fs::path& folder) {
  add_saves(all, folder);
  add_reads(all, folder);
  all.push_back(std::make_unique<GcOperation>(folder / "gc"));
  const fs::path source = folder / "read";
  for (const char* to : {"weights.pt", "model.safetensors", "directory"}) {
    const fs::path place = folder / fmt::format("to-{}", to);
    fs::create_directories(place);
    std::ofstream(place / "neighbour") << "stays";
    all.push_back(std::make_unique<ConvertOperation>(fmt::format("convert-{}", to), source, place / to));
  }
}

}  // namespace cairn
