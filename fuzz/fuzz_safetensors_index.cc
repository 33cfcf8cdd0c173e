// model.safetensors.index.json
#include "base/source.h"
#include "format/safetensors.h"
#include "fuzz.h"

namespace cairn::fuzz {

void run(ByteSpan input, const Limits& limits) {
  const SafetensorsIndex index = read_safetensors_index(*memory_source(input), limits);
  for (const auto& [tensor, file] : index.weight_map)
    must("a file name of an accepted index is safe",
         [&, &name = file] { check_relative_path(name, limits); });
  const std::string once = write_safetensors_index(index);
  Limits wider = limits;
  wider.json_bytes = 1 << 20;
  const SafetensorsIndex again = must("a written index reads back", [&] {
    return read_safetensors_index(*memory_source(as_bytes(once)), wider);
  });
  require(again.weight_map == index.weight_map && again.total_size == index.total_size,
          "an index is the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
