// A FileSystem that lacks abilities another one has, and says so.
//
//   CrippledFileSystem files(*memory_file_system(), {.locks = true});   // as between machines
#pragma once

#include <memory>

#include "cairn/error.h"
#include "testing/forwarding.h"

namespace cairn {

struct Lacks {
  bool locks = false;  // everybody gets every lock
  bool replace_if_unchanged = false;
  bool exclusive_create = false;  // whoever commits a name replaces what has it
};

class CrippledFileSystem : public ForwardingFileSystem {
 public:
  CrippledFileSystem(FileSystem& inner, const Lacks& lacks) : ForwardingFileSystem(inner), lacks_(lacks) {}

  Capabilities capabilities() const override {
    Capabilities can = inner_.capabilities();
    can.locks_across_machines = can.locks_across_machines && !lacks_.locks;
    can.replace_if_unchanged = can.replace_if_unchanged && !lacks_.replace_if_unchanged;
    can.exclusive_create = can.exclusive_create && !lacks_.exclusive_create;
    return can;
  }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    CreateOptions rest = options;
    rest.replace = options.replace || lacks_.exclusive_create;
    if (lacks_.replace_if_unchanged && options.expected)
      throw Error(ErrorCode::kUnsupported, "cannot replace a file only if it is unchanged");
    return inner_.create(name, rest);
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
