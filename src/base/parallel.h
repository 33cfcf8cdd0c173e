// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace cairn {

// Calls work(i, thread) for every i below `count`, in order of i as threads become free, on `threads` threads
// numbered from 0. The first exception stops it and is thrown here.
void for_each_in_parallel(std::size_t count, int threads, const std::function<void(std::size_t, int)>& work);

}  // namespace cairn
