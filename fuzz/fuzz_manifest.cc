// The manifest: accepted ones have one spelling, so writing gives back the bytes that were read.
#include "base/source.h"
#include "format/manifest.h"
#include "fuzz.h"

namespace cairn::fuzz {

void run(ByteSpan input, const Limits& limits) {
  const Manifest manifest = read_manifest(*memory_source(input), limits);
  for (const ManifestFile& file : manifest.files) {
    std::uint64_t end = 0;
    for (const ManifestItem& item : file.items) {
      require(item.offset >= end && item.offset <= file.size && item.length <= file.size - item.offset,
              "items are in order, apart, and inside their file");
      end = item.offset + item.length;
    }
  }
  StringSink sink;
  ManifestWriter writer(sink, manifest.save_id, manifest.strong, manifest.block_size);
  for (const ManifestFile& file : manifest.files) writer.add(file);
  writer.finish();
  require(sink.text == as_text(input), "a manifest has one spelling");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
