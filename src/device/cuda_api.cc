#include "device/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "cairn/error.h"

namespace cairn::cuda {
namespace {

[[noreturn]] void unsupported(const std::string& why) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("tensors in a CUDA device's memory need NVIDIA's driver, and {}", why));
}

void* open_library() {
  // Never closed: the driver does not expect to be unloaded.
  if (void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return library;
  const char* why = ::dlerror();
  unsupported(fmt::format("it cannot be loaded: {}", why != nullptr ? why : "libcuda.so.1"));
}

template <class Function> void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) unsupported(fmt::format("this one has no {}: it is too old", name));
}

std::string text_of(const Api& api, Result result) {
  const char* text = nullptr;
  if (api.error_string(result, &text) != kSuccess || text == nullptr) text = "unknown error";
  return fmt::format("{} (CUDA error {})", text, result);
}

}  // namespace

Api load_api() {
  void* library = open_library();
  Api api;
#define X(member, name, parameters) find(library, name, api.member);
  CAIRN_CUDA_FUNCTIONS(X)
#undef X
  if (const Result result = api.init(0); result != kSuccess)
    unsupported("it does not start: " + text_of(api, result));
  return api;
}

void check(const Api& api, Result result, const char* what) {
  if (result == kSuccess) return;
  const ErrorCode code = result == kOutOfMemory ? ErrorCode::kLimit : ErrorCode::kIo;
  throw Error(code, fmt::format("{}: {}", what, text_of(api, result)));
}

}  // namespace cairn::cuda
