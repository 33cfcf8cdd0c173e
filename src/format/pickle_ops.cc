#include "format/pickle_ops.h"

#include <array>

namespace cairn::pickle {
namespace {

struct Row {
  std::uint8_t code;
  OpFacts facts;
};

constexpr Row kRows[] = {
    {kMark, {"MARK", Operand::kNothing, kEverywhere}},
    {kStop, {"STOP", Operand::kNothing, kEverywhere}},
    {kBinFloat, {"BINFLOAT", Operand::kF64, kEverywhere}},
    {kBinInt, {"BININT", Operand::kI32, kEverywhere}},
    {kBinInt1, {"BININT1", Operand::kU8, kEverywhere}},
    {kBinInt2, {"BININT2", Operand::kU16, kEverywhere}},
    {kNoneOp, {"NONE", Operand::kNothing, kEverywhere}},
    {kBinPersid, {"BINPERSID", Operand::kNothing, kInTorch}},
    {kReduce, {"REDUCE", Operand::kNothing, kEverywhere}},
    {kShortBinString, {"SHORT_BINSTRING", Operand::kText1, kInTorch}},
    {kBinUnicode, {"BINUNICODE", Operand::kText4, kEverywhere}},
    {kAppend, {"APPEND", Operand::kNothing, kEverywhere}},
    {kBuild, {"BUILD", Operand::kNothing, kEverywhere}},
    {kGlobalOp, {"GLOBAL", Operand::kLines2, kEverywhere}},
    {kAppends, {"APPENDS", Operand::kNothing, kEverywhere}},
    {kBinGet, {"BINGET", Operand::kU8, kEverywhere}},
    {kLongBinGet, {"LONG_BINGET", Operand::kU32, kEverywhere}},
    {kBinPut, {"BINPUT", Operand::kU8, kEverywhere}},
    {kLongBinPut, {"LONG_BINPUT", Operand::kU32, kEverywhere}},
    {kSetItem, {"SETITEM", Operand::kNothing, kEverywhere}},
    {kTupleOp, {"TUPLE", Operand::kNothing, kEverywhere}},
    {kSetItems, {"SETITEMS", Operand::kNothing, kEverywhere}},
    {kEmptyList, {"EMPTY_LIST", Operand::kNothing, kEverywhere}},
    {kEmptyTuple, {"EMPTY_TUPLE", Operand::kNothing, kEverywhere}},
    {kEmptyDict, {"EMPTY_DICT", Operand::kNothing, kEverywhere}},
    {kBinBytes, {"BINBYTES", Operand::kText4, kEverywhere}},
    {kShortBinBytes, {"SHORT_BINBYTES", Operand::kText1, kEverywhere}},
    {kProto, {"PROTO", Operand::kU8, kEverywhere}},
    {kNewObj, {"NEWOBJ", Operand::kNothing, kEverywhere}},
    {kTuple1, {"TUPLE1", Operand::kNothing, kEverywhere}},
    {kTuple2, {"TUPLE2", Operand::kNothing, kEverywhere}},
    {kTuple3, {"TUPLE3", Operand::kNothing, kEverywhere}},
    {kNewTrue, {"NEWTRUE", Operand::kNothing, kEverywhere}},
    {kNewFalse, {"NEWFALSE", Operand::kNothing, kEverywhere}},
    {kLong1, {"LONG1", Operand::kText1, kEverywhere}},
    {kShortBinUnicode, {"SHORT_BINUNICODE", Operand::kText1, kEverywhere}},
    {kBinUnicode8, {"BINUNICODE8", Operand::kText8, kEverywhere}},
    {kEmptySet, {"EMPTY_SET", Operand::kNothing, kEverywhere}},
    {kAddItems, {"ADDITEMS", Operand::kNothing, kEverywhere}},
    {kFrozenSet, {"FROZENSET", Operand::kNothing, kEverywhere}},
    {kStackGlobal, {"STACK_GLOBAL", Operand::kNothing, kEverywhere}},
    {kMemoize, {"MEMOIZE", Operand::kNothing, kEverywhere}},
    {kFrame, {"FRAME", Operand::kU64, kEverywhere}},
    // Known, and refused by the machine: old text forms, stack tricks, calls by name.
    {'0', {"POP", Operand::kNothing, kNowhere}},
    {'1', {"POP_MARK", Operand::kNothing, kNowhere}},
    {'2', {"DUP", Operand::kNothing, kNowhere}},
    {'F', {"FLOAT", Operand::kLines1, kNowhere}},
    {'I', {"INT", Operand::kLines1, kNowhere}},
    {'L', {"LONG", Operand::kLines1, kNowhere}},
    {'P', {"PERSID", Operand::kLines1, kNowhere}},
    {'S', {"STRING", Operand::kLines1, kNowhere}},
    {'T', {"BINSTRING", Operand::kText4, kNowhere}},
    {'V', {"UNICODE", Operand::kLines1, kNowhere}},
    {'d', {"DICT", Operand::kNothing, kNowhere}},
    {'g', {"GET", Operand::kLines1, kNowhere}},
    {'i', {"INST", Operand::kLines2, kNowhere}},
    {'l', {"LIST", Operand::kNothing, kNowhere}},
    {'o', {"OBJ", Operand::kNothing, kNowhere}},
    {'p', {"PUT", Operand::kLines1, kNowhere}},
    {0x82, {"EXT1", Operand::kU8, kNowhere}},
    {0x83, {"EXT2", Operand::kU16, kNowhere}},
    {0x84, {"EXT4", Operand::kI32, kNowhere}},
    {0x8b, {"LONG4", Operand::kText4, kNowhere}},
    {0x8e, {"BINBYTES8", Operand::kText8, kNowhere}},
    {0x92, {"NEWOBJ_EX", Operand::kNothing, kNowhere}},
    {0x96, {"BYTEARRAY8", Operand::kText8, kNowhere}},
    {0x97, {"NEXT_BUFFER", Operand::kNothing, kNowhere}},
    {0x98, {"READONLY_BUFFER", Operand::kNothing, kNowhere}},
};

constexpr std::array<OpFacts, 256> table() {
  std::array<OpFacts, 256> all{};
  for (const Row& row : kRows) all[row.code] = row.facts;
  return all;
}

constexpr std::array<OpFacts, 256> kTable = table();

int width_of(Operand operand) {
  switch (operand) {
    case Operand::kU8:
    case Operand::kText1: return 1;
    case Operand::kU16: return 2;
    case Operand::kI32:
    case Operand::kU32:
    case Operand::kText4: return 4;
    case Operand::kU64:
    case Operand::kF64:
    case Operand::kText8: return 8;
    default: return 0;
  }
}

// The text up to the `lines`-th newline, and the offset behind it.
bool take_lines(std::string_view program, int lines, Instruction& out) {
  std::size_t end = out.next;
  for (int i = 0; i < lines; ++i) {
    end = program.find('\n', end);
    if (end == std::string_view::npos) return false;
    ++end;
  }
  out.text = program.substr(out.next, end - out.next - 1);
  out.next = end;
  return true;
}

}  // namespace

const OpFacts& facts_of(std::uint8_t op) { return kTable[op]; }

std::optional<Instruction> decode(std::string_view program, std::uint64_t at) {
  if (at >= program.size()) return std::nullopt;
  Instruction out;
  out.at = at;
  out.op = static_cast<std::uint8_t>(program[at]);
  out.next = at + 1;
  const Operand operand = facts_of(out.op).operand;
  if (operand == Operand::kUnknown) return std::nullopt;
  const std::size_t width = width_of(operand);
  if (program.size() - out.next < width) return std::nullopt;
  std::memcpy(&out.number, program.data() + out.next, width);
  out.next += width;
  switch (operand) {
    case Operand::kText1:
    case Operand::kText4:
    case Operand::kText8:
      if (program.size() - out.next < out.number) return std::nullopt;
      out.text = program.substr(out.next, out.number);
      out.next += out.number;
      return out;
    case Operand::kLines1: return take_lines(program, 1, out) ? std::optional(out) : std::nullopt;
    case Operand::kLines2: return take_lines(program, 2, out) ? std::optional(out) : std::nullopt;
    default: return out;
  }
}

}  // namespace cairn::pickle
