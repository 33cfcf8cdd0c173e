// The note of DCP's Hugging Face writer in a safetensors header: which part of a tensor a file holds.
#include <string>
#include <utility>
#include <vector>

#include "format/sharding_info.h"
#include "fuzz.h"

namespace cairn::fuzz {

void run(ByteSpan input, const Limits& limits) {
  const auto offsets = parse_sharding_info(as_text(input), limits);
  std::vector<std::pair<std::string, Shape>> rows(offsets.begin(), offsets.end());
  for (const auto& [name, at] : rows) {
    require(at.rank() <= limits.tensor_rank, "offsets have as many dimensions as a tensor may");
    for (const std::int64_t n : at) require(n >= 0, "an offset is not negative");
  }
  const auto again =
      must("written notes read back", [&] { return parse_sharding_info(write_sharding_info(rows), limits); });
  require(again == offsets, "notes are the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
