// The command `cairn`.
#include <cstdlib>
#include <memory>

#include "command.h"

int main(int argc, char** argv) {
  std::unique_ptr<cairn::cli::Command> command;
  int code = 1;  // not even enough memory to say what went wrong
  try {
    code = cairn::cli::guarded_main(argc, argv, command);
  } catch (...) {
  }
  // Without destructors: to free the metadata of a large checkpoint piece by piece takes as long as to
  // print it, and the process ends here anyway. All output is flushed.
  std::_Exit(code);
}
