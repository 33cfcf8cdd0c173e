// data.pkl: the pickle machine, the walk into values, the disassembler and the writer.
#include "base/source.h"
#include "cairn/state_dict.h"
#include "format/pickle.h"
#include "format/pickle_survey.h"
#include "format/pickle_writer.h"
#include "fuzz.h"

namespace cairn::fuzz {

namespace {

constexpr std::uint64_t kRewrittenBytes = 16 << 20;  // a value may be larger than its pickle, by sharing

Value read_value(ByteSpan input, pickle::Dialect dialect, std::uint64_t max_bytes, const Limits& limits) {
  pickle::Options options;
  options.dialect = dialect;
  options.max_bytes = max_bytes;
  const pickle::Graph graph = pickle::read(*memory_source(input), options, limits);
  return pickle::to_value(graph, graph.root(), {}, limits);
}

std::string write_value(const Value& value) {
  StringSink sink;
  pickle::Writer writer(sink, 2);
  writer.value(value);
  writer.finish();
  return sink.text;
}

// The metadata dialect is a subset: what it accepts, the torch dialect must accept.
bool accepted_as_metadata(ByteSpan input, const Limits& limits) {
  try {
    read_value(input, pickle::Dialect::kMetadata, limits.torch_pickle_bytes, limits);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What must come back just as it was.
std::string whole_value(ByteSpan input, const Limits& limits) {
  pickle::Options options;
  options.dialect = pickle::Dialect::kMetadata;
  options.max_bytes = kRewrittenBytes;
  const pickle::Graph graph = pickle::read(*memory_source(input), options, limits);
  Budget budget(input.size(), limits);
  pickle::Survey survey(graph, budget, limits);
  return write_value(pickle::to_whole_value(graph, graph.root(), survey, budget, limits));
}

void keep_whole(ByteSpan input, const Limits& limits) {
  std::string once;
  try {
    once = whole_value(input, limits);
  } catch (const Error&) {
    return;  // beyond the limits
  }
  const std::string again =
      must("what was kept whole reads back", [&] { return whole_value(as_bytes(once), limits); });
  require(again == once, "what was kept whole is the same after writing and reading");
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  pickle::disassemble(input, 200);
  const bool metadata = accepted_as_metadata(input, limits);
  if (metadata) keep_whole(input, limits);
  Value value;
  try {
    value = read_value(input, pickle::Dialect::kTorch, limits.torch_pickle_bytes, limits);
  } catch (const Error&) {
    require(!metadata, "the torch dialect reads what the metadata dialect reads");
    throw;
  }
  // Bytes are compared, not values: a NaN is not equal to itself.
  const std::string once = write_value(value);
  const Value again = must("a written pickle reads back", [&] {
    return read_value(as_bytes(once), pickle::Dialect::kTorch, kRewrittenBytes, limits);
  });
  require(write_value(again) == once, "a value is the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
