// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace cairn {

// At least one, also where the system does not say.
int core_count();

// Calls work(0) here and work(1), work(2), ... on threads of their own, `threads` calls in all; fewer where
// there are no more threads to be had, so the calls take what there is to do from each other. All have ended
// when it returns. The first exception is thrown here; `stop` is called once it is known, for the calls that
// go on to hear of it: what they throw then is nobody's to hear.
void share_work(int threads, const std::function<void(int)>& work, const std::function<void()>& stop = {});

// Calls work(i, thread) for every i below `count`, in order of i as threads become free, on `threads` threads
// numbered from 0. The first exception stops it and is thrown here; `stop` as above.
void for_each_in_parallel(std::size_t count, int threads, const std::function<void(std::size_t, int)>& work,
                          const std::function<void()>& stop = {});

}  // namespace cairn
