// What every command of `cairn` is made of.
#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace cairn::cli {

class Output;

// One command: declares its options once, then runs once. What it cannot do it says by throwing Error.
class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(CLI::App& options) = 0;
  virtual void run(Output& out) = 0;
  // It did what it was asked, and what it found is bad. The exit code says so.
  virtual bool has_bad_news() const { return false; }
};

// A row of the table of commands. `examples` are whole lines, each indented by two.
struct CommandRow {
  std::string_view name;
  std::string_view purpose;
  std::string_view examples;
  std::unique_ptr<Command> (*make)();
};
std::span<const CommandRow> command_table();  // main.cc

// Runs the command that the arguments name, and says what became of it: the exit code.
int guarded_main(int argc, char** argv, std::unique_ptr<Command>& command);  // main.cc

std::unique_ptr<Command> make_ls();
std::unique_ptr<Command> make_info();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_verify();
std::unique_ptr<Command> make_gc();
std::unique_ptr<Command> make_convert();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_completion();

}  // namespace cairn::cli
