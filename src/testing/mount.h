// A folder seen through a mount that lacks what real ones lack (tests/mount/crippled_mount.cc). Two of one
// folder are two machines.
//
//   if (const std::string why = why_no_mounts(); !why.empty()) GTEST_SKIP() << why;
//   CrippledMount mount(folder.path(), {"no-links", "flock-per-mount"});
#pragma once

#include <string>
#include <vector>

#include "testing/folder.h"

namespace cairn {

// Empty where one can mount: whoever cannot then has failed.
std::string why_no_mounts();

class CrippledMount {
 public:
  CrippledMount(const std::string& folder, const std::vector<const char*>& switches);
  CrippledMount(const CrippledMount&) = delete;
  CrippledMount& operator=(const CrippledMount&) = delete;
  ~CrippledMount();

  const std::string& path() const { return point_.path(); }

 private:
  TestFolder point_;
  int process_ = -1;
};

}  // namespace cairn
