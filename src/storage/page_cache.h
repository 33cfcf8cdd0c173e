// What the system keeps of files in memory.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

bool lives_in_memory(int fd);  // the file is in the page cache and nowhere else

// Whether most of a file is in the page cache: looks at a few pages all over it.
bool is_cached(int fd, std::uint64_t size);

// Makes the files of a directory durable and asks the system to forget their pages. False when some are still
// there: files of a file system in memory, pages that others use.
bool forget_cached(const std::string& directory);

}  // namespace cairn
