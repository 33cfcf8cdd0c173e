// cairn_probe rewrite-metadata [--time] IN OUT [IN OUT...]
//
// Reads each .metadata file IN and writes what was understood of it to OUT. A file that is refused gets a
// line on stderr and makes the exit status 1; the others are still written. With --time one JSON line a
// file says how long each half took.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "base/source.h"
#include "cairn/error.h"
#include "format/dcp_metadata.h"
#include "probe.h"
#include "testing/open_file.h"

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void rewrite_metadata(const char* from, const char* to, bool time) {
  auto start = std::chrono::steady_clock::now();
  const cairn::Metadata metadata = cairn::read_dcp_metadata(*cairn::open_file(from));
  const double read_ms = milliseconds_since(start);
  start = std::chrono::steady_clock::now();
  cairn::StringSink sink;
  cairn::write_dcp_metadata(sink, metadata);
  const double write_ms = milliseconds_since(start);
  std::ofstream out(to, std::ios::binary);
  out << sink.text;
  if (!out.flush()) throw cairn::Error(cairn::ErrorCode::kIo, "cannot write").in_file(to);
  if (time) std::printf("{\"read_ms\": %.3f, \"write_ms\": %.3f}\n", read_ms, write_ms);
}

}  // namespace

int probe_rewrite_metadata(int argc, char** argv) {
  int first = 1;
  const bool time = argc > 1 && std::string_view(argv[1]) == "--time";
  if (time) ++first;
  if (argc - first < 2 || (argc - first) % 2 != 0) return 2;
  int status = 0;
  for (int i = first; i < argc; i += 2) {
    try {
      rewrite_metadata(argv[i], argv[i + 1], time);
    } catch (const cairn::Error& e) {
      std::fprintf(stderr, "%s: %s\n", argv[i], e.what());
      status = 1;
    }
  }
  return status;
}
