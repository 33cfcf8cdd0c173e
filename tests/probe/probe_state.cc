#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "base/sink.h"
#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "file_sink.h"
#include "format/torch_file.h"
#include "probe.h"
#include "probe_json.h"
#include "testing/open_file.h"

namespace {

using nlohmann::ordered_json;
using namespace cairn;

// null where the names of two entries make one of them a list and the other a dict.
ordered_json unflattened(const Flattened& flat) {
  try {
    return to_string(unflatten(flat), 1 << 20);
  } catch (const Error&) {
    return nullptr;
  }
}

ordered_json flattened(const StateDict& state, FlattenRule rule) {
  try {
    const Flattened flat = flatten(state, rule);
    ordered_json entries = ordered_json::array();
    for (const FlatEntry& e : flat) entries.push_back({e.name, json_of(e.path), to_string(e.value, 1 << 20)});
    return {{"entries", entries}, {"unflattened", unflattened(flat)}};
  } catch (const Error& e) {
    return {{"error", e.message()}};
  }
}

}  // namespace

// stdin: a JSON array of structures (value_from). stdout: for each, both rules' entries (name, path, value)
// and what they unflatten to.
int probe_flatten(int, char**) {
  const ordered_json cases = ordered_json::parse(std::cin);
  ordered_json out = ordered_json::array();
  for (const ordered_json& c : cases) {
    const Value state = value_from(c);
    out.push_back({{"repr", to_string(state, 1 << 20)},
                   {"current", flattened(state.get<Dict>(), FlattenRule::kCurrent)},
                   {"torch23", flattened(state.get<Dict>(), FlattenRule::kTorch23)}});
  }
  std::cout << out.dump() << "\n";
  return 0;
}

// rewrite-torch (IN OUT)...: reads each archive, loads it and writes it again. Stops at the first that fails.
int probe_rewrite_torch(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0) return 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    FileSink sink(argv[i + 1]);
    try {
      write_torch_file(sink, TorchFile::open(open_file(argv[i]))->load());
    } catch (Error& e) {
      e.in_file(argv[i]);
      throw;
    }
  }
  return 0;
}
