// Checkpoints whose files can be changed behind their back, and what verify and a load then say.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/convert.h"
#include "cairn/verify.h"
#include "promise.h"
#include "testing/folder.h"
#include "testing/open_file.h"
#include "trainer_version.h"

namespace cairn {

enum class Loaded { kRight, kWrong, kError };

class DamagePlace {
 public:
  virtual ~DamagePlace() = default;
  virtual std::vector<std::string> files() const = 0;
  virtual std::string get(const std::string& file) const = 0;
  virtual void put(const std::string& file, const std::string& bytes) = 0;
  virtual void remove(const std::string& file) = 0;
  virtual bool verifies() const = 0;  // whether verify finds nothing wrong
  virtual Loaded load() const = 0;
};

template <class Call> bool throws_error(const Call& call) {
  try {
    call();
    return false;
  } catch (const Error& e) {
    require(e.code() != ErrorCode::kInternal, std::string("an internal error: ") + e.what());
    return true;
  }
}

// A DCP checkpoint of two ranks, in memory.
class DcpPlace final : public DamagePlace {
 public:
  explicit DcpPlace(int version) {
    run_ranks(2, [&](Group& group) {
      const auto writer = dcp_writer(files_, {.files_per_rank = 1});
      save(trainer_state(group.rank(), 2, version), "memory", {.group = &group, .writer = writer.get()});
    });
    right_ = load_all();
    require_trainer(right_, version);
  }

  std::vector<std::string> files() const override {
    std::vector<std::string> names;
    for (const FileEntry& entry : files_->list()) names.push_back(entry.name);
    return names;
  }
  std::string get(const std::string& file) const override { return read_all(*files_->open(file)); }
  void put(const std::string& file, const std::string& bytes) override {
    const auto writer = files_->create(file, {.replace = true});
    writer->write_at(0, as_bytes(bytes));
    writer->commit();
  }
  void remove(const std::string& file) override { files_->remove(file); }
  bool verifies() const override {
    VerifyOptions options;
    options.threads = 1;
    bool fine = false;
    return !throws_error([&] { fine = verify(*files_, options).ok(); }) && fine;
  }
  Loaded load() const override {
    StateDict state;
    if (throws_error([&] { state = load_all(); })) return Loaded::kError;
    return state == right_ ? Loaded::kRight : Loaded::kWrong;
  }

 private:
  // As loads are by default, with one thread: starting more takes longer than reading.
  StateDict load_all() const {
    const auto reader = dcp_reader(files_, {.threads = 1});
    return load_into_new("memory", std::nullopt, {.reader = reader.get()});
  }

  std::shared_ptr<FileSystem> files_ = memory_file_system();
  StateDict right_;
};

// Where nothing waits for a disk, if there is such a place.
inline std::filesystem::path place_in_memory() {
  return std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

// A file of torch.save's, one of safetensors, or a directory of those with an index: what others write too.
class FilePlace final : public DamagePlace {
 public:
  // `name` in the folder is what is opened; `subjects` are the files that are changed.
  FilePlace(const std::string& name, const ConvertOptions& options) : at_(folder_ / name) {
    const std::string source = folder_ / "source";
    save(trainer_state(0, 1, 1), source, {.write = {.durable = false}});
    convert(source, at_.string(), options);
    right_ = read_everything();
    require(right_.size() >= 5, "the file does not have what was saved");
  }

  std::vector<std::string> files() const override {
    if (!std::filesystem::is_directory(at_)) return {at_.string()};
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(at_)) names.push_back(entry.path().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string get(const std::string& file) const override { return read_all(*open_file(file)); }
  void put(const std::string& file, const std::string& bytes) override {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  void remove(const std::string& file) override { std::filesystem::remove(file); }
  bool verifies() const override {
    VerifyOptions options;
    options.threads = 1;
    bool fine = false;
    return !throws_error([&] { fine = verify(at_.string(), options).ok(); }) && fine;
  }
  Loaded load() const override {
    Everything found;
    if (throws_error([&] { found = read_everything(); })) return Loaded::kError;
    return found == right_ ? Loaded::kRight : Loaded::kWrong;
  }

 private:
  using Everything = std::map<std::string, Value>;
  Everything read_everything() const {
    Everything all;
    const auto checkpoint = Checkpoint::open(at_.string());
    for (const TensorSummary& tensor : checkpoint->tensors())
      all.emplace(tensor.name, Value(checkpoint->read(tensor.name)));
    for (const ObjectSummary& object : checkpoint->objects())
      all.emplace(object.name, checkpoint->object(object.name));
    return all;
  }

  TestFolder folder_{place_in_memory()};
  std::filesystem::path at_;
  Everything right_;
};

}  // namespace cairn
