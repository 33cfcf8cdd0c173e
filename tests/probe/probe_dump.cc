// dump PATH NAME [SELECTION]: "dtype shape\n", then the selected elements' bytes.
#include <cstdio>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "probe.h"

int probe_dump(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fputs("usage: dump PATH NAME [SELECTION]\n", stderr);
    return 2;
  }
  const auto checkpoint = cairn::Checkpoint::open(argv[1]);
  cairn::Selection selection;
  const auto position = checkpoint->find_tensor(argv[2]);
  if (position && argc == 4)
    selection = cairn::parse_selection(argv[3], checkpoint->tensors()[*position].shape);
  const cairn::Tensor tensor = checkpoint->read(argv[2], selection);
  const std::string dtype(cairn::name_of(tensor.view().dtype));
  std::printf("%s %s\n", dtype.c_str(), cairn::to_string(tensor.view().shape).c_str());
  std::fwrite(tensor.bytes().data(), 1, tensor.bytes().size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
