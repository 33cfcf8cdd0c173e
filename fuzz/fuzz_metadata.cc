// A whole .metadata file: read, written, read again.
#include "base/source.h"
#include "format/dcp_metadata.h"
#include "fuzz.h"

namespace cairn::fuzz {

namespace {

std::string written(const Metadata& metadata) {
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  return sink.text;
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  const Metadata metadata = read_dcp_metadata(*memory_source(input), limits);
  if (!metadata.storage_data.empty()) metadata.storage_data.find(metadata.storage_data.fqn(0), nullptr);
  const std::string once = must("what was read can be written", [&] { return written(metadata); });
  Limits wider = limits;  // shared parts are written out, so the file may grow
  wider.metadata_bytes = 64 << 20;
  const Metadata again = must("a written .metadata reads back",
                              [&] { return read_dcp_metadata(*memory_source(as_bytes(once)), wider); });
  // Bytes are compared, not values: a NaN in an extra attribute is not equal to itself.
  require(written(again) == once, "metadata is the same after writing and reading");
  require(again.state_dict_metadata.size() == metadata.state_dict_metadata.size(), "no entry is lost");
  require(again.storage_data.size() == metadata.storage_data.size(), "no storage entry is lost");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
