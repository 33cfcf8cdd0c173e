// Small pickles, written opcode by opcode, for the tests of the pickle machine and its writer.
#pragma once

#include <string>

#include "format/pickle.h"
#include "testing/errors.h"

namespace cairn::pickle {

inline Graph parse(const std::string& program, Dialect dialect = Dialect::kTorch, const Limits& limits = {}) {
  Options options;
  options.dialect = dialect;
  return read(*memory_source(as_bytes(program)), options, limits);
}

inline Value value_of(const std::string& program, const Limits& limits = {}) {
  const Graph graph = parse(program, Dialect::kTorch, limits);
  return to_value(graph, graph.root(), {}, limits);
}

// Protocol 2 around the given opcodes.
inline std::string program(const std::string& body) { return "\x80\x02" + body + "."; }

inline ErrorCode refusal(const std::string& text, Dialect dialect = Dialect::kTorch,
                         const Limits& limits = {}) {
  return error_of([&] { parse(text, dialect, limits); }).code();
}

}  // namespace cairn::pickle
