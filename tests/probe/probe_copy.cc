#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"
#include "probe.h"

namespace {

using cairn::DType;

DType dtype_named(std::string_view name) {
  const auto dtype = cairn::dtype_from_name(name);
  if (!dtype) throw cairn::Error(cairn::ErrorCode::kInvalidArgument, fmt::format("no dtype '{}'", name));
  return *dtype;
}

std::string read_stdin() {
  std::string all;
  std::vector<char> buffer(1 << 20);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    all.append(buffer.data(), got);
  }
  return all;
}

void write_converted(std::string& elements, DType from, DType to) {
  const auto count = static_cast<std::int64_t>(elements.size() / cairn::item_size(from));
  const auto source = cairn::TensorView::contiguous(elements.data(), from, {count});
  const cairn::Tensor result = cairn::Tensor::empty(to, {count});
  cairn::copy(source, result.view());
  const auto bytes = result.bytes();
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) {
    throw cairn::Error(cairn::ErrorCode::kIo, "cannot write to stdout");
  }
}

}  // namespace

// copy SRC DST[,DST...]: converts the raw elements on stdin to each destination type in turn and writes
// the raw results one after the other.
int probe_copy(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: copy SRC_DTYPE DST_DTYPE[,DST_DTYPE...] < elements > elements\n");
    return 2;
  }
  const DType from = dtype_named(argv[1]);
  std::string elements = read_stdin();
  std::string_view names = argv[2];
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    write_converted(elements, from, dtype_named(name));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
  }
  return 0;
}
