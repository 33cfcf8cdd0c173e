// The part of NVIDIA's driver that is used here, declared so that no header of theirs is needed to build.
//
// Names and numbers are those of the driver's ABI (cuda.h), which keeps them from version to version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::cuda {

using Result = int;  // CUresult
inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;

using Context = void*;
using Stream = void*;
using Event = void*;
using DevicePtr = std::uint64_t;

inline constexpr unsigned kStreamNonBlocking = 1;  // not ordered with the default stream
inline constexpr unsigned kEventBlockingSync = 1;  // who waits sleeps
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;  // pinned for all contexts
inline constexpr unsigned kMemoryHost = 1;            // CUmemorytype
inline constexpr unsigned kMemoryDevice = 2;

// One side of a CUDA_MEMCPY3D.
struct CopySide {
  std::size_t x = 0, y = 0, z = 0, lod = 0;
  unsigned memory_type = 0;
  const void* host = nullptr;
  DevicePtr device = 0;
  void* array = nullptr;
  void* reserved = nullptr;
  std::size_t pitch = 0;
  std::size_t height = 0;
};

struct Copy3D {
  CopySide from, to;
  std::size_t width = 0, height = 0, depth = 0;
};

// X(member, exported name, parameters)
#define CAIRN_CUDA_FUNCTIONS(X)                                                            \
  X(init, "cuInit", (unsigned))                                                            \
  X(error_string, "cuGetErrorString", (Result, const char**))                              \
  X(device_count, "cuDeviceGetCount", (int*))                                              \
  X(device_get, "cuDeviceGet", (int*, int))                                                \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Context*, int))                           \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (int))                                \
  X(context_push, "cuCtxPushCurrent_v2", (Context))                                        \
  X(context_pop, "cuCtxPopCurrent_v2", (Context*))                                         \
  X(stream_create, "cuStreamCreate", (Stream*, unsigned))                                  \
  X(stream_destroy, "cuStreamDestroy_v2", (Stream))                                        \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                   \
  X(stream_wait_event, "cuStreamWaitEvent", (Stream, Event, unsigned))                     \
  X(stream_context, "cuStreamGetCtx", (Stream, Context*))                                  \
  X(event_create, "cuEventCreate", (Event*, unsigned))                                     \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                           \
  X(event_record, "cuEventRecord", (Event, Stream))                                        \
  X(event_synchronize, "cuEventSynchronize", (Event))                                      \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                          \
  X(memory_allocate, "cuMemAlloc_v2", (DevicePtr*, std::size_t))                           \
  X(memory_free, "cuMemFree_v2", (DevicePtr))                                              \
  X(host_register, "cuMemHostRegister_v2", (void*, std::size_t, unsigned))                 \
  X(host_unregister, "cuMemHostUnregister", (void*))                                       \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void*, DevicePtr, std::size_t, Stream))         \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (DevicePtr, const void*, std::size_t, Stream)) \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", (DevicePtr, DevicePtr, std::size_t, Stream))   \
  X(copy_3d, "cuMemcpy3DAsync_v2", (const Copy3D*, Stream))

// The functions, found in the loaded library.
struct Api {
// A declaration, where parentheses would mean something else. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define X(member, name, parameters) Result(*member) parameters = nullptr;
  CAIRN_CUDA_FUNCTIONS(X)
#undef X
};

// Loads libcuda.so.1 and starts it. Error(kUnsupported). The library stays loaded.
Api load_api();

// Error(kLimit) when memory is short, else Error(kIo).
void check(const Api& api, Result result, const char* what);

}  // namespace cairn::cuda
