#include <cstdio>
#include <exception>
#include <string_view>

#include "probe.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"copy", probe_copy},
    {"flatten", probe_flatten},
    {"rewrite-torch", probe_rewrite_torch},
    {"dump", probe_dump},
    {"rewrite-metadata", probe_rewrite_metadata},
    {"rewrite-safetensors", probe_rewrite_safetensors},
    {"plan", probe_plan},
    {"load-plan", probe_load_plan},
    {"save", probe_save},
    {"load", probe_load},
    {"load-optimizer", probe_load_optimizer},
    {"read", probe_read},
    {"time", probe_time},
};

int usage() {
  std::fputs("usage: cairn_probe COMMAND [ARG...]\ncommands:", stderr);
  for (const Command& command : kCommands) {
    std::fprintf(stderr, " %.*s", static_cast<int>(command.name.size()), command.name.data());
  }
  std::fputs("\n", stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage();
  for (const Command& command : kCommands) {
    if (command.name != argv[1]) continue;
    try {
      return command.run(argc - 1, argv + 1);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "cairn_probe: %s\n", e.what());
      return 1;
    }
  }
  return usage();
}
