// promises DIR: a handful of promises that are tried one by one, where chance would seldom try them.
//
// Prints one JSON object; exits 1 when a promise is broken, after all were tried, with their names.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/gc.h"
#include "cairn/verify.h"
#include "checkpoint/dcp_names.h"
#include "format/manifest.h"
#include "os_calls.h"
#include "promise.h"
#include "testing/states.h"

namespace {

using namespace cairn;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

// The code of the error that `call` throws.
std::optional<ErrorCode> code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckpointError& e) {
    return e.failures().begin()->second.code();
  } catch (const Error& e) {
    return e.code();
  }
  return std::nullopt;
}

StateDict state_of(int version, std::int64_t rows = 64) {
  StateDict state;
  state.set("w", Value(numbered({rows, 16}, version)));
  state.set("v", Value(numbered({33}, version + 1)));
  return state;
}

void require_version(const std::string& dir, int version, std::int64_t rows = 64) {
  const StateDict found = load_into_new(dir);
  require(found == state_of(version, rows), "what is there is not what was saved");
}

// A dcp_writer whose results somebody tampers with.
class TamperedWriter final : public StorageWriter {
 public:
  using Tamper = std::function<void(WrittenData&)>;
  TamperedWriter(const std::string& dir, Tamper tamper)
      : inner_(dcp_writer(posix_file_system(dir, {.create = true}), {})), tamper_(std::move(tamper)) {}

  std::optional<StorageMeta> storage_meta() const override { return inner_->storage_meta(); }
  void set_up_storage_writer(const WriterRole& role) override { inner_->set_up_storage_writer(role); }
  SavePlan prepare_local_plan(SavePlan plan) override { return inner_->prepare_local_plan(std::move(plan)); }
  std::vector<SavePlan> prepare_global_plan(std::vector<SavePlan> plans) override {
    return inner_->prepare_global_plan(std::move(plans));
  }
  WrittenData write_data(const SavePlan& plan, SavePlanner& planner) override {
    WrittenData data = inner_->write_data(plan, planner);
    tamper_(data);
    return data;
  }
  void finish(Metadata& metadata, std::vector<WrittenData> all) override {
    inner_->finish(metadata, std::move(all));
  }
  void abandon() noexcept override { inner_->abandon(); }
  bool is_published() override { return inner_->is_published(); }

 private:
  std::unique_ptr<StorageWriter> inner_;
  Tamper tamper_;
};

void require_refused(const std::string& dir, const TamperedWriter::Tamper& tamper) {
  save(state_of(1), dir);
  TamperedWriter writer(dir, tamper);
  SaveOptions options;
  options.writer = &writer;
  require(code_of([&] { save(state_of(2), dir, options); }).has_value(), "it was published");
  require_version(dir, 1);
}

void results_cover_the_plan(const std::string& dir) {
  require_refused(dir, [](WrittenData& data) { data.results.back() = data.results.front(); });
}

void a_manifest_of_another_save_is_refused(const std::string& dir) {
  require_refused(dir, [](WrittenData& data) {
    const Manifest mine = read_manifest(*memory_source(as_bytes(data.attachment), "a rank's checksums"));
    data.attachment = encode_manifest(random_save_id(), mine.strong, mine.files);
  });
}

void a_wrong_block_is_found(const std::string& dir) {
  save(state_of(1), dir);
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() != ".distcp") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto middle = file.tellg() / 2;
    file.seekg(middle);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
  }
  require(code_of([&] { load_into_new(dir); }) == ErrorCode::kCorrupt, "a load took it");
  require(!verify(dir).ok(), "verify took it");
}

void a_change_of_the_state_is_no_cached_plan(const std::string& dir) {
  DefaultSavePlanner planner({.enable_plan_caching = true});
  SaveOptions options;
  options.planner = &planner;
  for (int i = 0; i < 2; ++i) save(state_of(1), dir, options);
  StateDict more = state_of(2);
  more.set("new", Value(numbered({5}, 9)));
  save(more, dir, options);
  require(load_into_new(dir) == more, "a new tensor was not saved");
  save(state_of(3, 65), dir, options);
  require_version(dir, 3, 65);
}

void one_save_at_a_time(const std::string& dir) {
  save(state_of(1), dir);
  const auto files = posix_file_system(dir);
  const auto lock = files->lock(lock_name());
  require(code_of([&] { save(state_of(2), dir); }) == ErrorCode::kConflict, "two saves at once");
  require_version(dir, 1);
}

void nothing_is_published_after_the_deadline(const std::string& dir) {
  save(state_of(1), dir);
  TamperedWriter late(dir, [](WrittenData&) { std::this_thread::sleep_for(400ms); });
  SaveOptions options;
  options.writer = &late;
  options.deadline = 200ms;
  require(code_of([&] { save(state_of(2), dir, options); }) == ErrorCode::kTimeout, "it came too late");
  require_version(dir, 1);
}

void gc_leaves_what_is_in_use(const std::string& dir) {
  save(state_of(1), dir);
  std::ofstream(dir + "/" + data_file_name(0, 0, random_save_id())) << "left by a dead save";
  require(gc(dir).files.size() == 1, "gc removed something else");
  require_version(dir, 1);
}

// Makes the first call of a kind on a file of that kind fail.
class FailOnce final : public trial::OsWatcher {
 public:
  FailOnce(trial::OsCall call, std::string file) : call_(call), file_(std::move(file)) {}
  trial::OsResult on(const trial::OsRequest& request, const trial::OsProceed& proceed) override {
    const bool meant = request.call == call_ && request.path.find(file_) != request.path.npos;
    return meant && !failed_.exchange(true) ? trial::OsResult::failure(EIO) : proceed();
  }
  bool has_failed() const { return failed_; }

 private:
  trial::OsCall call_;
  std::string file_;
  std::atomic<bool> failed_ = false;
};

// The save must fail, whatever a second try would give.
void require_noticed(const std::string& dir, trial::OsCall call, const std::string& file = ".distcp") {
  save(state_of(1), dir);
  FailOnce watcher(call, file);
  std::optional<ErrorCode> code;
  {
    const trial::OsWatch watch(dir, watcher);
    code = code_of([&] { save(state_of(2), dir); });
  }
  require(watcher.has_failed(), "the call that was to fail was not made");
  require(code == ErrorCode::kIo, "the save went on");
  require_version(dir, 1);
}

void a_failed_sync_is_final(const std::string& dir) { require_noticed(dir, trial::OsCall::kSync); }
void a_failed_close_is_an_error(const std::string& dir) { require_noticed(dir, trial::OsCall::kClose); }
void a_failed_write_is_an_error(const std::string& dir) { require_noticed(dir, trial::OsCall::kWrite); }

void a_save_that_fails_leaves_nothing_behind(const std::string& dir) {
  for (const trial::OsCall call : {trial::OsCall::kSync, trial::OsCall::kRename})
    for (const char* file : {".distcp", "manifest", ".metadata"}) require_noticed(dir, call, file);
  const auto files = std::distance(fs::directory_iterator(dir), {});
  require(files == 3, fmt::format("{} files are there", files));  // data, manifest, metadata
}

struct Promise {
  const char* name;
  void (*keep)(const std::string& dir);
};

const std::vector<Promise> kPromises = {
    {"results cover the plan", results_cover_the_plan},
    {"a manifest of another save is refused", a_manifest_of_another_save_is_refused},
    {"a wrong block is found", a_wrong_block_is_found},
    {"a change of the state is no cached plan", a_change_of_the_state_is_no_cached_plan},
    {"one save at a time", one_save_at_a_time},
    {"nothing is published after the deadline", nothing_is_published_after_the_deadline},
    {"gc leaves what is in use", gc_leaves_what_is_in_use},
    {"a failed sync is final", a_failed_sync_is_final},
    {"a failed close is an error", a_failed_close_is_an_error},
    {"a failed write is an error", a_failed_write_is_an_error},
    {"a save that fails leaves nothing behind", a_save_that_fails_leaves_nothing_behind},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string place = trial::watched_directory(argv[1]);
  int broken = 0;
  for (const Promise& promise : kPromises) {
    const std::string dir = fmt::format("{}/{}", place, &promise - kPromises.data());
    fs::remove_all(dir);
    try {
      promise.keep(dir);
    } catch (const std::exception& e) {
      ++broken;
      fmt::print(stderr, "promises: {}: {}\n", promise.name, e.what());
    }
  }
  fmt::print("{{\"promises\": {}, \"broken\": {}}}\n", kPromises.size(), broken);
  return broken == 0 ? 0 : 1;
}
