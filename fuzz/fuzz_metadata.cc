// A whole .metadata file: read, written, read again.
#include <optional>

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

// Reading opcode by opcode gives what recognising whole objects gives, or the same refusal. Only limits may
// be met by one and not by the other: what is recognised whole needs no stack and no nesting. And what is
// done to a whole object that makes no sense is one more thing that cannot be done to it.
Metadata read_both_ways(ByteSpan input, const Limits& limits) {
  std::optional<Error> refusal;
  const auto outcome = [&](auto&& read, std::optional<Metadata>& made) {
    try {
      made = read();
    } catch (const Error& e) {
      refusal = e;
      return name_of(e.code());
    }
    return std::string_view("ok");
  };
  std::optional<Metadata> quick;
  std::optional<Metadata> plain;
  const auto source = memory_source(input);
  const std::string_view second = outcome([&] { return read_dcp_metadata_plainly(*source, limits); }, plain);
  const std::string_view first = outcome([&] { return read_dcp_metadata(*source, limits); }, quick);
  if (first != "limit" && second != "limit") {
    require(first == second || (first == "unsupported" && second == "corrupt"),
            "quick and plain reading judge alike");
  }
  if (quick && plain) require(written(*quick) == written(*plain), "quick and plain reading agree");
  if (!quick) throw *refusal;
  return *std::move(quick);
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  const Metadata metadata = read_both_ways(input, limits);
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
