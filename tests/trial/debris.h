// What saves leave behind that were killed while they wrote, and before they could publish.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/dcp_names.h"
#include "storage/file_names.h"

namespace cairn {

inline void leave_debris(const std::string& dir) {
  std::filesystem::create_directories(dir);
  const SaveId dead = random_save_id();
  for (const std::string& name :
       {data_file_name(0, 0, dead), data_file_name(3, 1, dead), manifest_name(dead),
        partial_name(data_file_name(1, 0, random_save_id())), partial_name(".metadata")})
    std::ofstream(dir + "/" + name) << "left by a dead save";
}

}  // namespace cairn
