#include <fmt/format.h>

#include <bit>

#include "format/pickle.h"
#include "format/pickle_ops.h"

namespace cairn::pickle {
namespace {

// Text between quotes, with everything a terminal might act on written as \xNN; cut after 80 characters.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c < 0x20 || c > 0x7e) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + (text.size() > kShown ? "'..." : "'");
}

std::string operand(const Instruction& at) {
  switch (facts_of(at.op).operand) {
    case Operand::kNothing: return "";
    case Operand::kI32: return fmt::format(" {}", static_cast<std::int32_t>(at.number));
    case Operand::kF64: return fmt::format(" {}", std::bit_cast<double>(__builtin_bswap64(at.number)));
    case Operand::kU8:
    case Operand::kU16:
    case Operand::kU32:
    case Operand::kU64: return fmt::format(" {}", at.number);
    default: return " " + quoted(at.text);
  }
}

}  // namespace

std::string disassemble(ByteSpan pickle, std::size_t max_lines) {
  const std::string_view program = as_text(pickle);
  std::string out;
  std::uint64_t at = 0;
  for (std::size_t line = 0; at < program.size(); ++line) {
    if (line == max_lines) return out + fmt::format("... {} more bytes\n", program.size() - at);
    const std::optional<Instruction> instruction = decode(program, at);
    if (!instruction) return out + fmt::format("{:6}: not a pickle opcode\n", at);
    out += fmt::format("{:6}: {}{}\n", at, facts_of(instruction->op).name, operand(*instruction));
    at = instruction->next;
  }
  return out;
}

}  // namespace cairn::pickle
