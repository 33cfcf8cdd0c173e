// The lowest layer against the machine: copies against memcpy, checksums and dequantised bytes in GB/s, one
// thread.
//
//   micro [copy|hash|dequantize]      one JSON object per line
//
// A copy's speed counts the bytes it reads plus the bytes it writes, for cairn and for memcpy alike, so
// a widening conversion and a plain copy are measured by the same memory traffic. Limit and result are
// timed in turns in one run; each is the best of several repetitions.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>

#include "base/hash.h"
#include "cairn/dequantize.h"
#include "cairn/tensor.h"

namespace {

using cairn::DType;
using cairn::Tensor;
using cairn::TensorView;

constexpr int kRepetitions = 7;
constexpr std::int64_t kBytes = std::int64_t{256} << 20;  // well beyond any cache

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Every page is written once before anything is timed.
Tensor filled(DType dtype, cairn::Shape shape) {
  Tensor tensor = Tensor::empty(dtype, std::move(shape));
  std::uint32_t state = 1;
  for (std::byte& byte : tensor.bytes()) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>((state >> 24) & 0x3f);  // small finite numbers in every float format
  }
  return tensor;
}

// One copy against memcpy of as many bytes as it reads and writes together.
void report_copy(std::string_view name, const TensorView& from, const TensorView& to, double target) {
  const std::uint64_t traffic = from.bytes() + to.bytes();
  Tensor a = filled(DType::kUInt8, {static_cast<std::int64_t>(traffic / 2)});
  Tensor b = filled(DType::kUInt8, {static_cast<std::int64_t>(traffic / 2)});
  double ours = std::numeric_limits<double>::infinity();
  double limit = ours;
  for (int i = 0; i < kRepetitions; ++i) {
    limit =
        std::min(limit, seconds_of([&] { std::memcpy(b.bytes().data(), a.bytes().data(), traffic / 2); }));
    ours = std::min(ours, seconds_of([&] { cairn::copy(from, to); }));
  }
  const double gigabytes = static_cast<double>(traffic) / 1e9;
  fmt::print(R"({{"name": "{}", "cairn": {:.3f}, "unit": "GB/s read+written", "limit": {:.3f}, )"
             R"("ratio": {:.3f}, "target": {}}})"
             "\n",
             name, gigabytes / ours, gigabytes / limit, limit / ours, target);
}

TensorView transposed(TensorView view) {
  view.shape = {view.shape[1], view.shape[0]};
  view.strides = {view.strides[1], view.strides[0]};
  return view;
}

void report_transpose(std::string_view name, DType dtype) {
  const std::int64_t rows = kBytes / static_cast<std::int64_t>(cairn::item_size(dtype)) / 4096;
  const Tensor from = filled(dtype, {4096, rows});
  const Tensor to = filled(dtype, {rows, 4096});
  report_copy(name, transposed(from.view()), to.view(), 0.5);
}

void run_copy() {
  {
    const Tensor from = filled(DType::kFloat32, {kBytes / 4});
    const Tensor to = filled(DType::kFloat32, {kBytes / 4});
    report_copy("copy.contiguous", from.view(), to.view(), 0.9);
  }
  report_transpose("copy.transposed_f32", DType::kFloat32);
  report_transpose("copy.transposed_bf16", DType::kBFloat16);
  const Tensor from = filled(DType::kBFloat16, {kBytes / 2});
  const Tensor to = filled(DType::kFloat32, {kBytes / 2});
  report_copy("copy.bf16_to_f32", from.view(), to.view(), 0.5);
}

void report_hash(std::string_view name, cairn::ByteSpan bytes, const std::function<void()>& hash) {
  constexpr double kTarget = 5.0;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) best = std::min(best, seconds_of(hash));
  const double speed = static_cast<double>(bytes.size()) / 1e9 / best;
  fmt::print(R"({{"name": "{}", "cairn": {:.3f}, "unit": "GB/s", "target": {:.1f}, "better": "higher"}})"
             "\n",
             name, speed, kTarget);
}

void run_hash() {
  const Tensor tensor = filled(DType::kUInt8, {kBytes});
  const cairn::ByteSpan bytes = tensor.bytes();
  volatile std::uint64_t kept = 0;  // the compiler must not drop the work
  report_hash("hash.crc32", bytes, [&] { kept = cairn::crc32(bytes); });
  report_hash("hash.crc32c", bytes, [&] { kept = cairn::crc32c(bytes); });
  report_hash("hash.xxh3", bytes, [&] { kept = cairn::xxh3_64(bytes); });
}

// Bytes of the result per second.
void report_dequantized(std::string_view name, const TensorView& to, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) best = std::min(best, seconds_of(work));
  fmt::print(R"({{"name": "{}", "cairn": {:.3f}, "unit": "GB/s", "target": 2.0, "better": "higher"}})"
             "\n",
             name, static_cast<double>(to.bytes()) / 1e9 / best);
}

void run_dequantize() {
  constexpr std::int64_t kColumns = 4096, kBlock = 128, kGroup = 16;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const std::int64_t rows = kBytes / kColumns / static_cast<std::int64_t>(cairn::item_size(dtype));
    const Tensor to = filled(dtype, {rows, kColumns});
    const Tensor elements = filled(DType::kFloat8E4M3FN, {rows, kColumns});
    const Tensor scales = Tensor::zeros(DType::kFloat32, {rows / kBlock, kColumns / kBlock});
    report_dequantized(fmt::format("dequantize.float8_to_{}", name_of(dtype)), to.view(), [&] {
      cairn::dequantize_blocks(elements.view(), 0, 0, kBlock, scales.view(), to.view());
    });
    const Tensor codes = filled(DType::kUInt8, {rows, kColumns / 2});
    const Tensor powers = filled(DType::kUInt8, {rows, kColumns / 2 / kGroup});
    report_dequantized(fmt::format("dequantize.mxfp4_to_{}", name_of(dtype)), to.view(),
                       [&] { cairn::dequantize_mxfp4(codes.view(), powers.view(), 0, to.view()); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view part = argc > 1 ? argv[1] : "";
  if (argc > 2 || (!part.empty() && part != "copy" && part != "hash" && part != "dequantize")) {
    fmt::print(stderr, "usage: micro [copy|hash|dequantize]\n");
    return 2;
  }
  if (part.empty() || part == "copy") run_copy();
  if (part.empty() || part == "hash") run_hash();
  if (part.empty() || part == "dequantize") run_dequantize();
  return 0;
}
