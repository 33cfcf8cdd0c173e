// Loads, clean-ups and conversions of a checkpoint, which must stay as it is.
#include <fstream>

#include "base/source.h"
#include "cairn/convert.h"
#include "cairn/gc.h"
#include "debris.h"
#include "saved_versions.h"
#include "scenes.h"
#include "testing/open_file.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr int kVersion = 7;

// The names of a directory's files and what is in them.
std::map<std::string, std::string> contents_of(const std::string& dir) {
  std::map<std::string, std::string> contents;
  if (!fs::is_directory(dir)) return contents;
  for (const auto& entry : fs::directory_iterator(dir))
    contents[entry.path().filename().string()] = read_all(*open_file(entry.path().string()));
  return contents;
}

// A checkpoint that is only looked at.
class Source {
 public:
  explicit Source(std::string dir) : dir_(std::move(dir)) {}
  const std::string& dir() const { return dir_; }

  void prepare() {
    if (!contents_.empty()) return;
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, kVersion); });
    ranks.require_success("the save");
    contents_ = contents_of(dir_);
  }
  void require_untouched() const {
    require(contents_of(dir_) == contents_, "the checkpoint that was read is not what it was");
  }

 private:
  std::string dir_;
  std::map<std::string, std::string> contents_;
};

class LoadScene final : public Scene {
 public:
  LoadScene(std::string name, const std::string& dir, ReplicaReads replicas)
      : name_(std::move(name)), source_(dir + "/" + name_), replicas_(replicas) {}
  std::string name() const override { return name_; }
  int ranks() const override { return kRanks; }
  void prepare() override { source_.prepare(); }

  void run(Group& group) override {
    LoadOptions options;
    options.group = &group;
    options.deadline = seconds(30);
    options.plan.replicas = replicas_;
    const StateDict state = load_into_new(source_.dir(), std::nullopt, options);
    if (version_of(state) != kVersion) throw std::runtime_error("the load gave another version");
  }
  void check(const Outcome&) override { source_.require_untouched(); }

 private:
  std::string name_;
  Source source_;
  ReplicaReads replicas_;
};

class GcScene final : public Scene {
 public:
  explicit GcScene(const std::string& dir) : dir_(dir + "/gc"), source_(dir_) {}
  std::string name() const override { return "gc"; }
  int ranks() const override { return 1; }

  void prepare() override {
    source_.prepare();
    leave_debris(dir_);
    std::ofstream(dir_ + "/" + std::string(kLockName));  // of one that died at once
  }
  void run(Group&) override { gc(dir_); }
  void check(const Outcome&) override {
    gc(dir_);
    source_.require_untouched();
  }

 private:
  std::string dir_;
  Source source_;
};

class ConvertScene final : public Scene {
 public:
  ConvertScene(std::string name, const std::string& dir, std::string to, ConvertOptions options)
      : name_(std::move(name)),
        source_(dir + "/" + name_),
        place_(dir + "/" + name_ + "-to"),
        to_(place_ + "/" + to),
        options_(std::move(options)) {}
  std::string name() const override { return name_; }
  int ranks() const override { return 1; }

  void prepare() override {
    source_.prepare();
    fs::remove_all(place_);
    fs::create_directory(place_);
  }
  void run(Group&) override { convert(source_.dir(), to_, options_); }

  void check(const Outcome& outcome) override {
    source_.require_untouched();
    const bool there = is_there();
    require(there || !outcome.any_succeeded(), "the conversion was said to be done, and it is not there");
    if (outcome.action == "error" && !there)
      require(fs::is_empty(place_), "a conversion that failed left something behind");
    ConvertOptions again = options_;
    again.overwrite = true;
    convert(source_.dir(), to_, again);
    require(is_there(), "the next conversion is not there");
  }

 private:
  // Whole, that is: it is converted back, and what comes out is compared.
  bool is_there() const {
    const bool dcp = !options_.to && !to_.ends_with(".safetensors");
    const std::string last = dcp ? "/.metadata" : "/model.safetensors.index.json";
    if (!fs::exists(fs::is_directory(to_) ? to_ + last : to_)) return false;
    if (dcp) return version_in(to_) == kVersion;
    const std::string back = place_ + "-back";
    fs::remove_all(back);
    convert(to_, back);
    require_large(load_into_new(back), kVersion);
    return true;
  }

  std::string name_;
  Source source_;
  std::string place_, to_;
  ConvertOptions options_;
};

}  // namespace

std::vector<std::unique_ptr<Scene>> other_scenes(const std::string& dir) {
  std::vector<std::unique_ptr<Scene>> scenes;
  scenes.push_back(std::make_unique<LoadScene>("load", dir, ReplicaReads::kReadAll));
  scenes.push_back(std::make_unique<LoadScene>("shared-load", dir, ReplicaReads::kReadOnce));
  scenes.push_back(std::make_unique<GcScene>(dir));
  scenes.push_back(std::make_unique<ConvertScene>("convert-dcp", dir, "run", ConvertOptions{.ranks = 2}));
  scenes.push_back(std::make_unique<ConvertScene>("convert-safetensors", dir, "model.safetensors",
                                                  ConvertOptions{.skip_objects = true}));
  scenes.push_back(std::make_unique<ConvertScene>(
      "convert-hugging-face", dir, "model",
      ConvertOptions{.to = Format::kHuggingFace, .skip_objects = true, .shards = 3}));
  return scenes;
}

}  // namespace cairn
