// Safetensors headers.
#include <algorithm>
#include <tuple>

#include "base/source.h"
#include "format/safetensors.h"
#include "fuzz.h"

namespace cairn::fuzz {

void run(ByteSpan input, const Limits& limits) {
  const SafetensorsHeader header = read_safetensors_header(*memory_source(input), limits);
  std::vector<SafetensorsEntry> entries = header.tensors;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.offset, a.bytes) < std::tuple(b.offset, b.bytes);
  });
  std::uint64_t at = header.data_offset;
  for (const SafetensorsEntry& entry : entries) {
    require(entry.offset == at && entry.bytes <= input.size() - at, "tensors tile the file");
    at += entry.bytes;
  }
  require(at == input.size(), "tensors fill the file");

  std::string copy = make_safetensors_header(entries, header.metadata);
  copy.append(as_text(input.subspan(header.data_offset)));
  Limits wider = limits;  // numbers and escapes may be written longer than they were read
  wider.safetensors_header_bytes = 1 << 20;
  const SafetensorsHeader again = must("a written header reads back", [&] {
    return read_safetensors_header(*memory_source(as_bytes(copy)), wider);
  });
  require(again.metadata == header.metadata, "metadata is the same after writing and reading");
  require(again.tensors.size() == entries.size(), "no tensor is lost");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SafetensorsEntry& a = entries[i];
    const SafetensorsEntry& b = again.tensors[i];
    require(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.offset == b.offset &&
                a.bytes == b.bytes,
            "a tensor is the same after writing and reading");
  }
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
