#include "base/bytes.h"
#include "cairn/checkpoint.h"
#include "format/pickle.h"

namespace cairn {

std::string disassemble_pickle(std::string_view pickle, std::size_t max_lines) {
  return pickle::disassemble(as_bytes(pickle), max_lines);
}

}  // namespace cairn
