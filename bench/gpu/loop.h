// A stand-in for a training: kernels that keep a GPU busy.
#pragma once

#include <dlfcn.h>

#include <type_traits>

#include "gpu/raw.h"

namespace cairn::bench {

// A kernel of multiplications, given as PTX; launched on the default stream, as a training does.
class ComputeLoop {
 public:
  explicit ComputeLoop(DeviceDriver& driver) {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      must(function != nullptr, name);
    };
    find(retain_, "cuDevicePrimaryCtxRetain");
    find(set_current_, "cuCtxSetCurrent");
    find(load_, "cuModuleLoadData");
    find(function_, "cuModuleGetFunction");
    find(launch_, "cuLaunchKernel");
    find(synchronize_, "cuStreamSynchronize");
    void* context = nullptr;
    must(retain_(&context, 0) == 0, "cuDevicePrimaryCtxRetain");
    context_ = context;
    must(set_current_(context_) == 0, "cuCtxSetCurrent");
    must(load_(&module_, kKernel) == 0, "cuModuleLoadData");
    must(function_(&kernel_, module_, "spin") == 0, "cuModuleGetFunction");
    out_ = driver.allocate(0, kBlocks * 256 * 4);
  }

  // Kernels a second, run one after the other for so long.
  double rate(double seconds) {
    must(set_current_(context_) == 0, "cuCtxSetCurrent");
    const auto start = Clock::now();
    int kernels = 0;
    while (seconds_since(start) < seconds) {
      for (int i = 0; i < 4; ++i, ++kernels) launch();
      must(synchronize_(nullptr) == 0, "the kernel");
    }
    return kernels / seconds_since(start);
  }

 private:
  static constexpr unsigned kBlocks = 132 * 8;
  static constexpr const char* kKernel = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .f32 %f<8>;
  .reg .u32 %r<8>;
  .reg .u64 %d<4>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [count];
  cvta.to.global.u64 %d1, %d1;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.u32 %r2, %r3, %r4, %r2;
  cvt.rn.f32.u32 %f1, %r2;
  mov.f32 %f2, 0f3F7FFFFE;
  mov.f32 %f3, 0f3F000000;
  mov.f32 %f4, %f1;
  mov.f32 %f5, %f3;
  mov.u32 %r5, 0;
again:
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f4, %f4, %f2, %f3;
  fma.rn.f32 %f5, %f5, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f4, %f4, %f2, %f3;
  fma.rn.f32 %f5, %f5, %f2, %f3;
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, %r1;
  @%p1 bra again;
  add.f32 %f1, %f1, %f4;
  add.f32 %f1, %f1, %f5;
  mul.wide.u32 %d2, %r2, 4;
  add.u64 %d3, %d1, %d2;
  st.global.f32 [%d3], %f1;
  ret;
}
)";
  void launch() {
    std::uint64_t out = reinterpret_cast<std::uint64_t>(out_.get());
    unsigned count = 20000;
    void* parameters[] = {&out, &count};
    must(launch_(kernel_, kBlocks, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr) == 0, "cuLaunchKernel");
  }

  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*function_)(void**, void*, const char*) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  void* context_ = nullptr;
  void* module_ = nullptr;
  void* kernel_ = nullptr;
  std::shared_ptr<std::byte> out_;
};

}  // namespace cairn::bench
