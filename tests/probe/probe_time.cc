// cairn_probe time KIND FILE
//
// Reads one file with the parser for KIND (metadata, torch, pickle, zip, safetensors, index, manifest) from
// memory, and prints what that took: {"bytes": n, "verdict": "ok" or a code, "cpu_ms": n, "user_ms": n,
// "peak_kib": n}. user_ms is without the kernel's part, most of which is to find memory. The peak is what the
// process needed beyond the file itself.
#include <sys/resource.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/source.h"
#include "cairn/error.h"
#include "format/dcp_metadata.h"
#include "format/manifest.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "format/torch_file.h"
#include "format/zip.h"
#include "probe.h"
#include "testing/open_file.h"

namespace {

using cairn::ByteSource;

struct Kind {
  std::string_view name;
  void (*read)(const std::shared_ptr<const ByteSource>& source);
};

constexpr Kind kKinds[] = {
    {"metadata", [](const auto& source) { cairn::read_dcp_metadata(*source); }},
    {"torch", [](const auto& source) { cairn::TorchFile::open(source); }},
    {"pickle",
     [](const auto& source) {
       const auto graph = cairn::pickle::read(*source, {});
       cairn::pickle::to_value(graph, graph.root(), {});
     }},
    {"zip", [](const auto& source) { cairn::ZipReader(source, {}); }},
    {"safetensors", [](const auto& source) { cairn::read_safetensors_header(*source); }},
    {"index", [](const auto& source) { cairn::read_safetensors_index(*source); }},
    {"manifest", [](const auto& source) { cairn::read_manifest(*source); }},
};

double processor_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double user_milliseconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec) * 1e3 + static_cast<double>(used.ru_utime.tv_usec) * 1e-3;
}

// A line of /proc/self/status, in KiB.
long status_kib(const char* name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == name) {
      status >> word;
      return std::stol(word);
    }
  return 0;
}

}  // namespace

int probe_time(int argc, char** argv) {
  if (argc != 3) return 2;
  for (const Kind& kind : kKinds) {
    if (kind.name != argv[1]) continue;
    const std::string file = cairn::read_all(*cairn::open_file(argv[2]));
    const auto source = cairn::memory_source(cairn::as_bytes(file));
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
    const long before = status_kib("VmRSS:");
    const double start = processor_milliseconds();
    const double user_start = user_milliseconds();
    std::string_view verdict = "ok";
    try {
      kind.read(source);
    } catch (const cairn::Error& e) {
      verdict = cairn::name_of(e.code());
    }
    const double milliseconds = processor_milliseconds() - start;
    const double user = user_milliseconds() - user_start;
    std::printf(
        "{\"bytes\": %zu, \"verdict\": \"%.*s\", \"cpu_ms\": %.1f, \"user_ms\": %.1f, \"peak_kib\": %ld}\n",
        file.size(), static_cast<int>(verdict.size()), verdict.data(), milliseconds, user,
        status_kib("VmHWM:") - before);
    return 0;
  }
  return 2;
}
