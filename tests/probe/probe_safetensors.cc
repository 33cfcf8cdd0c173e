// cairn_probe rewrite-safetensors IN OUT [IN OUT...]
//
// Reads each safetensors file IN, header and data, and writes OUT with the tensors in the same order.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/source.h"
#include "cairn/error.h"
#include "file_sink.h"
#include "format/safetensors.h"
#include "probe.h"
#include "testing/open_file.h"

namespace {

void rewrite_safetensors(const char* from, const char* to) {
  const auto source = cairn::open_file(from);
  const cairn::SafetensorsHeader header = cairn::read_safetensors_header(*source);
  std::vector<std::pair<std::string, cairn::Tensor>> tensors;
  for (const cairn::SafetensorsEntry& entry : header.tensors) {
    cairn::Tensor tensor = cairn::Tensor::empty(entry.dtype, entry.shape);
    source->read_at(entry.offset, tensor.bytes());
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  FileSink sink(to);
  cairn::write_safetensors(sink, tensors, header.metadata);
}

}  // namespace

int probe_rewrite_safetensors(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0) return 2;
  for (int i = 1; i < argc; i += 2) rewrite_safetensors(argv[i], argv[i + 1]);
  return 0;
}
