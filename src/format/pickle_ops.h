// The opcodes of pickle: their codes, names and operands.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace cairn::pickle {

enum Op : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneOp = 'N',
  kBinPersid = 'Q',
  kReduce = 'R',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalOp = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTupleOp = 't',
  kSetItems = 'u',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// How an opcode's operand is laid out.
enum class Operand : std::uint8_t {
  kNothing,
  kU8,
  kU16,
  kI32,
  kU32,
  kU64,
  kF64,
  kText1,
  kText4,
  kText8,  // a length of 1, 4 or 8 bytes, then that many
  kLines1,
  kLines2,   // one or two lines of text, each ended by \n
  kUnknown,  // no such opcode
};

enum Accepted : std::uint8_t { kNowhere = 0, kInMetadata = 1, kInTorch = 2, kEverywhere = 3 };

struct OpFacts {
  const char* name = nullptr;
  Operand operand = Operand::kUnknown;
  Accepted accepted = kNowhere;  // in which dialects the machine takes it
};

// Every opcode of protocols 0 to 5, by its byte.
const OpFacts& facts_of(std::uint8_t op);

// One instruction of a program.
struct Instruction {
  std::uint64_t at = 0;  // offset of the opcode
  std::uint8_t op = 0;
  std::uint64_t number = 0;  // integer operands, zero-extended; the length for texts
  std::string_view text;     // the operand's bytes, for texts and lines (without the last \n)
  std::uint64_t next = 0;    // offset of the next instruction
};

// Decodes the instruction at `at`; nullopt when it is unknown or runs past the end.
std::optional<Instruction> decode(std::string_view program, std::uint64_t at);

}  // namespace cairn::pickle
