// Whether what is going to be written has room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"

namespace cairn {

// Of the tensor's elements; of an object nobody knows it yet, and it is 0.
std::uint64_t bytes_of(const WriteItem& item);

// Before the first byte: Error(kIo) with ENOSPC when the file system has no room for all tensors. It names
// the first one that would not be whole.
// With kWarn its text is added to `warnings` instead, once.
void check_space(const FileSystem& files, std::span<const SavePlan> plans, OnLowSpace low_space,
                 std::vector<std::string>& warnings);

// Whether a file system said that it is full, or that the user's share of it is.
bool is_full(const Error& error);

}  // namespace cairn
