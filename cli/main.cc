// A table of commands, and what happens when one fails.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.h"
#include "cairn/version.h"
#include "command.h"
#include "json.h"
#include "near.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

constexpr CommandRow kCommands[] = {
    {"ls", "List the tensors and objects of a checkpoint",
     "  cairn ls run/step-1000\n"
     "  cairn ls run/step-1000 'model.layers.0.*' --long\n"
     "  cairn ls model.safetensors --tree --depth 2\n"
     "  cairn ls weights.pt --json | jq '.tensors[].name'\n",
     make_ls},
    {"info", "Say what a checkpoint is, how large, and what looks odd about it",
     "  cairn info run/step-1000\n"
     "  cairn info run/step-1000 --json | jq '.odd'\n",
     make_info},
    {"show", "Print one tensor or object: values, statistics, histogram",
     "  cairn show run/step-1000 model.embed.weight\n"
     "  cairn show run/step-1000 'model.w[0:16, ::2]' --full --precision 8\n"
     "  cairn show run/step-1000 optimizer.param_groups\n"
     "  cairn show weights.pt layer.bias --json | jq '.statistics.mean'\n",
     make_show},
    {"verify", "Check every byte of a checkpoint against its checksums",
     "  cairn verify run/step-1000\n"
     "  cairn verify run/step-1000 --threads 16\n"
     "  cairn verify run/step-1000 --json | jq -r '.problems[].tensor' | sort -u\n",
     make_verify},
    {"gc", "Remove what saves that did not finish left behind",
     "  cairn gc run/step-1000 --dry-run\n"
     "  cairn gc run/step-1000\n",
     make_gc},
    {"convert", "Convert between DCP directories, .pt and .safetensors files",
     "  cairn convert run/step-1000 weights.pt\n"
     "  cairn convert weights.pt run/step-0 --ranks 8\n"
     "  cairn convert run/step-1000 hub/model --to safetensors --keys 'model.*' --dtype bfloat16 "
     "--max-shard-size 5GB\n"
     "  cairn convert run/step-1000 model.safetensors --map names.txt --skip-objects --dry-run\n"
     "  cairn convert run/step-1000 run/small --zstd --ranks 2\n",
     make_convert},
    {"bench", "Measure how fast this machine and file system save and load",
     "  cairn bench /mnt/shared/scratch/bench\n"
     "  cairn bench /dev/shm/bench --size 8GiB --tensors 400\n"
     "  cairn bench run/bench --keep && cairn ls run/bench/checkpoint\n"
     "  cairn bench run/bench --json | jq '.save.of_raw'\n",
     make_bench},
    {"completion", "Print a script that teaches a shell to complete cairn's commands",
     "  source <(cairn completion bash)\n"
     "  cairn completion zsh > \"${fpath[1]}/_cairn\"\n",
     make_completion},
};

constexpr int kOk = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;

constexpr std::string_view kExitCodes =
    "Exit codes: 0 fine; 1 the checkpoint is bad or cannot be read; 2 wrong usage; 130 interrupted.";

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kUsage;
    case ErrorCode::kCancelled: return kInterrupted;
    default: return kFailed;
  }
}

std::string version_text() {
  std::string text = fmt::format("cairn {}", version());
  for (const Feature& feature : features())
    text +=
        fmt::format("\n  {:<10} {:<4} {}", feature.name, feature.available ? "yes" : "no", feature.purpose);
  return text;
}

void declare_options(CLI::App& app) {
  app.name("cairn");
  app.set_version_flag("--version", version_text(), "Print the version and what was compiled in");
  app.footer("'cairn COMMAND --help' has the options and examples of each command.\n" +
             std::string(kExitCodes));
}

// The command the arguments name. Looked up before the options are parsed: a mistyped command would
// otherwise be reported as a superfluous argument.
const CommandRow* named_command(int argc, char** argv) {
  if (argc < 2) throw Error(ErrorCode::kInvalidArgument, "no command given; see 'cairn --help'");
  const std::string_view name = argv[1];
  if (name.starts_with('-')) return nullptr;
  std::vector<std::string_view> names;
  for (const CommandRow& row : kCommands) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  const std::string near = did_you_mean(name, names);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown command '{}'{}", name, near.empty() ? "; see 'cairn --help'" : near));
}

// Arguments that nobody took, as an error that names the options they resemble.
void refuse_extras(const CLI::App& command) {
  const std::vector<std::string> extras = command.remaining();
  if (extras.empty()) return;
  const std::string& extra = extras.front();
  if (!extra.starts_with('-'))
    throw Error(ErrorCode::kInvalidArgument, fmt::format("unexpected argument '{}'", extra));
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const std::vector<std::string_view> views(options.begin(), options.end());
  const std::string near = did_you_mean(extra.substr(0, extra.find('=')), views);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown option '{}'{}", extra,
                          near.empty() ? fmt::format("; see 'cairn {} --help'", command.get_name()) : near));
}

void run(int argc, char** argv, std::unique_ptr<Command>& command, Output& out) {
  CLI::App app{"cairn looks into checkpoints: PyTorch DCP directories, .pt and .safetensors files."};
  declare_options(app);
  const CommandRow* named = named_command(argc, argv);
  CLI::App* parsed = nullptr;
  for (const CommandRow& row : kCommands) {
    CLI::App* options = app.add_subcommand(std::string(row.name), std::string(row.purpose));
    if (&row != named) continue;  // the others are only listed
    options->footer("Examples:\n" + std::string(row.examples) + "\n" + std::string(kExitCodes));
    options->allow_extras();
    parsed = options;
    command = row.make();
    command->declare(*options);
  }
  try {
    app.parse(argc, argv);
    if (command == nullptr) throw Error(ErrorCode::kInvalidArgument, "no command given; see 'cairn --help'");
    refuse_extras(*parsed);
  } catch (const CLI::CallForHelp&) {
    out.text(parsed != nullptr ? parsed->help("cairn") : app.help());
    return;
  } catch (const CLI::CallForVersion& request) {
    out.text(std::string(request.what()) + "\n");
    return;
  } catch (const CLI::ParseError& error) {
    // A mistyped option comes before what is missing, which may be its value.
    if (parsed != nullptr) refuse_extras(*parsed);
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
  command->run(out);
}

// Everything after "--" is a name, so it is no option there.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    if (std::strcmp(argv[i], "--json") == 0) return true;
  return false;
}

void print_error_json(const Error& error, Output& out) {
  out.discard();
  if (out.started()) return;  // half a document is out; a second one would not mend it
  JsonWriter json(out);
  json.begin_object();
  json.key("error");
  json.begin_object();
  json.member("code", name_of(error.code()));
  std::string message = error.message();
  if (error.os_error() != 0) message += fmt::format(": {}", std::strerror(error.os_error()));
  json.member("message", std::string_view(message));
  const auto text_or_null = [&](std::string_view key, const std::string& text) {
    json.key(key);
    if (text.empty()) {
      json.null();
    } else {
      json.value(std::string_view(text));
    }
  };
  text_or_null("file", error.file());
  json.key("offset");
  if (error.offset()) {
    json.value(*error.offset());
  } else {
    json.null();
  }
  text_or_null("tensor", error.tensor());
  json.end_object();
  json.end_object();
  out.put('\n');
  out.flush();
}

// One line on stderr, whatever is in the message. What the command printed so far comes first.
int report(const Error& error, bool json, Output& out) {
  try {
    if (json) {
      print_error_json(error, out);
    } else {
      out.flush();
    }
  } catch (...) {
    // Standard output is beyond help; stderr and the exit code still tell.
  }
  const std::string line = "cairn: " + visible(error.what(), Backslash::kKeep) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  return exit_code(error.code());
}

}  // namespace

std::span<const CommandRow> command_table() { return kCommands; }

int guarded_main(int argc, char** argv, std::unique_ptr<Command>& command) {
  // A closed pipe and a file that may not grow are seen where they are written to. Ctrl-C keeps its default,
  // unless a command has something to clean up: the process dies of the signal, which a shell reports as 130.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  Output out(STDOUT_FILENO);
  const bool json = wants_json(argc, argv);
  const auto verdict = [&] { return command != nullptr && command->has_bad_news() ? kFailed : kOk; };
  try {
    run(argc, argv, command, out);
    out.flush();
    return verdict();
  } catch (const ReaderGone&) {
    return verdict();
  } catch (const Error& error) {
    return report(error, json, out);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorCode::kLimit, "out of memory"), json, out);
  } catch (const std::exception& error) {
    return report(Error(ErrorCode::kInternal, error.what()), json, out);
  } catch (...) {
    return report(Error(ErrorCode::kInternal, "unknown failure"), json, out);
  }
}

}  // namespace cairn::cli
