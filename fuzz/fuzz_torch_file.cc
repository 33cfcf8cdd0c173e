// Whole torch.save archives, or, in mode "blob", single items of a .distcp file.
#include <memory>

#include "base/source.h"
#include "format/torch_file.h"
#include "fuzz.h"

namespace cairn::fuzz {

namespace {

TorchFileOptions options_for(const Limits& limits) {
  if (mode_is("blob")) return {limits.blob_pickle_bytes, limits.blob_zip_entries};
  return {limits.torch_pickle_bytes, limits.zip_entries};
}

std::string written(const Value& value) {
  StringSink sink;
  const std::uint64_t length = write_torch_file(sink, value);
  require(length == sink.text.size(), "write_torch_file returns the number of bytes written");
  return sink.text;
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  const auto file = TorchFile::open(memory_source(input), options_for(limits), limits);
  for (const TorchFile::Stored& stored : file->tensors())
    require(stored.data_offset <= input.size() && stored.storage_bytes <= input.size() - stored.data_offset,
            "a storage lies inside the file");
  const Value value = file->load();
  std::string once;
  try {
    once = written(value);
  } catch (const Error& e) {
    // Objects nobody knows may hold storages of this file.
    require(e.code() == ErrorCode::kUnsupported, "what was read can be written");
    return;
  }
  Limits wider = limits;  // shared parts are written out, so the file may grow
  wider.zip_entries += 64;
  const TorchFileOptions options{64 << 20, wider.zip_entries};
  const Value again = must("a written file reads back", [&] {
    return TorchFile::open(memory_source(as_bytes(once)), options, wider)->load();
  });
  // Bytes are compared, not values: a NaN is not equal to itself.
  require(written(again) == once, "a value is the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
