// A FileSystem that lacks abilities another one has, and says so.
//
//   CrippledFileSystem files(*memory_file_system(), {.locks = true});   // as between machines
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "cairn/error.h"
#include "testing/forwarding.h"

namespace cairn {

struct Lacks {
  bool locks = false;  // everybody gets every lock
  bool replace_if_unchanged = false;
  bool exclusive_create = false;  // whoever commits a name replaces what has it
  bool atomic_rename = false;     // it says so, and renames as before
  bool listing = false;           // nothing is there, who lists it
  bool ranged_writes = false;     // a file is written from its front to its end, by one thread at a time
};

// Fails whoever writes elsewhere than at the end.
class GrowingFile final : public FileWriter {
 public:
  explicit GrowingFile(std::unique_ptr<FileWriter> inner) : inner_(std::move(inner)) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset < end_) throw Error(ErrorCode::kUnsupported, "a file here only grows").at(offset);
    if (writing_.exchange(true)) throw Error(ErrorCode::kInternal, "two threads write at the same time");
    inner_->write_at(offset, bytes);
    end_ = offset + bytes.size();
    writing_ = false;
  }
  bool appends_only() const override { return true; }
  void commit() override { inner_->commit(); }

 private:
  std::unique_ptr<FileWriter> inner_;
  std::atomic<bool> writing_ = false;
  std::uint64_t end_ = 0;
};

class CrippledFileSystem : public ForwardingFileSystem {
 public:
  CrippledFileSystem(FileSystem& inner, const Lacks& lacks) : ForwardingFileSystem(inner), lacks_(lacks) {}

  Capabilities capabilities() const override {
    Capabilities can = inner_.capabilities();
    can.locks_across_machines = can.locks_across_machines && !lacks_.locks;
    can.replace_if_unchanged = can.replace_if_unchanged && !lacks_.replace_if_unchanged;
    can.exclusive_create = can.exclusive_create && !lacks_.exclusive_create;
    can.atomic_rename = can.atomic_rename && !lacks_.atomic_rename;
    can.ranged_writes = can.ranged_writes && !lacks_.ranged_writes;
    return can;
  }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    CreateOptions rest = options;
    rest.replace = options.replace || lacks_.exclusive_create;
    if (lacks_.replace_if_unchanged && options.expected)
      throw Error(ErrorCode::kUnsupported, "cannot replace a file only if it is unchanged");
    std::unique_ptr<FileWriter> file = inner_.create(name, rest);
    if (!lacks_.ranged_writes) return file;
    return std::make_unique<GrowingFile>(std::move(file));
  }

  std::vector<FileEntry> entries(std::string_view folder) const override {
    return lacks_.listing ? std::vector<FileEntry>() : inner_.entries(folder);
  }

  std::unique_ptr<FileLock> lock(std::string_view name) override {
    struct Lock final : FileLock {
      bool is_exclusive() const override { return false; }
    };
    if (lacks_.locks) return std::make_unique<Lock>();
    return inner_.lock(name);
  }

 private:
  Lacks lacks_;
};

}  // namespace cairn
