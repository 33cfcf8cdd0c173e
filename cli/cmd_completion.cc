// cairn completion: scripts for shells, made from the same declarations as the options themselves.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "output.h"

namespace cairn::cli {
namespace {

struct Flag {
  std::string name;  // "--json"
  std::string purpose;
  bool takes_value = false;
};

std::vector<Flag> flags_of(const CommandRow& row) {
  CLI::App app;
  const auto command = row.make();
  command->declare(app);
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      flags.push_back({"--" + name, option->get_description(), option->get_items_expected_max() > 0});
  return flags;
}

// For a text between single quotes of a shell: _arguments and _describe of zsh also read [, ] and :.
std::string quoted_for_zsh(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\'') {
      safe += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':') safe += '\\';
      safe += c;
    }
  }
  return safe;
}

std::string bash_script() {
  std::string names;
  std::string cases;
  for (const CommandRow& row : command_table()) {
    names += std::string(names.empty() ? "" : " ") + std::string(row.name);
    std::string words;
    for (const Flag& flag : flags_of(row)) words += (words.empty() ? "" : " ") + flag.name;
    cases += fmt::format("    {}) options=\"{}\" ;;\n", row.name, words);
  }
  return fmt::format(R"(# bash completion for cairn: source <(cairn completion bash)
_cairn() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options=""
  COMPREPLY=()
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if [[ $before == --sort ]]; then
    COMPREPLY=($(compgen -W "size name" -- "$word"))
  elif [[ ${{COMP_WORDS[1]}} == completion ]]; then
    COMPREPLY=($(compgen -W "bash zsh" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -F _cairn cairn
)",
                     names, cases);
}

std::string zsh_script() {
  std::string names;
  std::string cases;
  for (const CommandRow& row : command_table()) {
    names += fmt::format("    '{}:{}'\n", row.name, quoted_for_zsh(row.purpose));
    cases += fmt::format("    {})\n      _arguments \\\n", row.name);
    for (const Flag& flag : flags_of(row)) {
      const std::string values = flag.name == "--sort" ? ":order:(size name)"
                                 : flag.takes_value    ? ":number:"
                                                       : "";
      cases += fmt::format("        '{}[{}]{}' \\\n", flag.name, quoted_for_zsh(flag.purpose), values);
    }
    cases += row.name == "completion" ? "        '1:shell:(bash zsh)' ;;\n" : "        '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef cairn
# zsh completion for cairn: put this as _cairn into a directory of $fpath.
_cairn() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  local command="${{words[2]}}"
  shift words
  (( CURRENT-- ))
  case "$command" in
{}  esac
}}
if [[ "${{funcstack[1]}}" == _cairn ]]; then
  _cairn "$@"
else
  compdef _cairn cairn
fi
)",
                     names, cases);
}

class Completion : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("SHELL", shell_, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  }
  void run(Output& out) override { out.text(shell_ == "bash" ? bash_script() : zsh_script()); }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> make_completion() { return std::make_unique<Completion>(); }

}  // namespace cairn::cli
