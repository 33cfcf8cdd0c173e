// Changes pickles by whole opcodes, so that most of what libFuzzer tries gets past the first few of them.
//
// An input is cut into instructions; some are copied, moved, dropped or made up, texts are replaced with
// their lengths kept right, memo numbers are pointed elsewhere, lengths and frames are made to lie. What
// cannot be decoded stays behind as one piece.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "format/pickle_ops.h"
#include "mutate.h"

namespace cairn::fuzz {
namespace {

using namespace cairn::pickle;
using Program = std::vector<std::string>;  // one instruction each

class Mutator {
 public:
  explicit Mutator(Random& random) : random_(random) {}

  void change(Program& program) {
    switch (below(9)) {
      case 0: return copy(program);
      case 1: return drop(program);
      case 2: return std::swap(program[below(program.size())], program[below(program.size())]);
      case 3: return insert(program);
      case 4: return point_elsewhere(program);
      case 5: return change_operand(program);
      case 6: return change_text(program);
      case 7: return insert_value(program);
      default: return frame(program);
    }
  }

 private:
  std::size_t below(std::size_t n) { return fuzz::below(random_, n); }
  // A run of instructions, put in again somewhere: often a whole object.
  void copy(Program& program) {
    const std::size_t from = below(program.size());
    const std::size_t count = std::min(1 + below(32), program.size() - from);
    const Program run(program.begin() + static_cast<std::ptrdiff_t>(from),
                      program.begin() + static_cast<std::ptrdiff_t>(from + count));
    program.insert(place(program), run.begin(), run.end());
  }
  void drop(Program& program) {
    const auto from = place(program);
    program.erase(from, from + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                   1 + below(4), static_cast<std::size_t>(program.end() - from))));
    if (program.empty()) program.emplace_back(".");
  }
  void insert(Program& program) {
    static constexpr std::string_view kOps = "(.NRQabesut])}\x81\x85\x86\x87\x88\x89\x8f\x90\x93\x94";
    program.insert(place(program), std::string(1, kOps[below(kOps.size())]));
  }
  // An instruction with an operand: a number, a name, a class of the tables, a fetch.
  void insert_value(Program& program) {
    static constexpr std::string_view kLines[] = {
        "ctorch._utils\n_rebuild_tensor_v2\n", "ctorch\nFloatStorage\n", "ctorch\nfloat32\n",
        "ccollections\nOrderedDict\n",         "ctorch\nSize\n",         "cbuiltins\neval\n",
    };
    std::string made;
    const std::uint64_t number = random_();
    switch (below(5)) {
      case 0: made = std::string(kLines[below(std::size(kLines))]); break;
      case 1: made = with_number(kBinInt, number, 4); break;
      case 2: made = with_number(kBinInt1, number % 9, 1); break;
      case 3: made = with_number(kBinGet, below(program.size()), 1); break;
      default: made = with_text(kShortBinUnicode, word(), 1);
    }
    program.insert(place(program), made);
  }
  // Another text in place of one, its length told as it is.
  void change_text(Program& program) {
    const std::size_t at = find(program, [](std::uint8_t op) { return length_bytes(op) != 0; });
    if (at == program.size()) return;
    const auto op = static_cast<std::uint8_t>(program[at][0]);
    const std::size_t width = length_bytes(op);
    std::string text = program[at].substr(std::min(program[at].size(), 1 + width));
    if (below(2) == 0)
      text = word();
    else
      mutate_bytes(text, 255);
    program[at] = with_text(op, text, width);
  }
  // Words that readers look for.
  std::string word() {
    static constexpr std::string_view kWords[] = {
        "torch",
        "float32",
        "storage",
        "cpu",
        "0",
        "FloatStorage",
        "offsets",
        "sizes",
        "chunks",
        "properties",
        "size",
        "state_dict_metadata",
        "planner_data",
        "storage_data",
        "fqn",
        "index",
        "offset",
        "relative_path",
        "length",
        "transform_descriptors",
        "torch.distributed.checkpoint.metadata",
        "TensorStorageMetadata",
        "ChunkStorageMetadata",
        "MetadataIndex",
        "collections",
        "OrderedDict",
        "../x",
        "",
        "__0_0.distcp",
    };
    return std::string(kWords[below(std::size(kWords))]);
  }
  static std::size_t length_bytes(std::uint8_t op) {
    switch (facts_of(op).operand) {
      case Operand::kText1: return 1;
      case Operand::kText4: return 4;
      case Operand::kText8: return 8;
      default: return 0;
    }
  }
  static std::string with_number(std::uint8_t op, std::uint64_t number, std::size_t width) {
    std::string made(1 + width, static_cast<char>(op));
    std::memcpy(made.data() + 1, &number, width);
    return made;
  }
  static std::string with_text(std::uint8_t op, const std::string& text, std::size_t width) {
    return with_number(op, text.size(), width) + text;
  }
  // Gives a fetch or a put the number of another one.
  void point_elsewhere(Program& program) {
    const std::size_t to = find(program, [](std::uint8_t op) { return std::strchr("hjqr", op) != nullptr; });
    if (to == program.size()) return;
    const std::size_t from = below(program.size());
    const auto other = decode(program[from], 0);
    const std::uint64_t number = other && other->text.empty() ? other->number : below(300);
    std::memcpy(program[to].data() + 1, &number, std::min(program[to].size() - 1, sizeof(number)));
  }
  // The number an instruction starts with: an integer, a length.
  void change_operand(Program& program) {
    static constexpr std::uint64_t kNumbers[] = {0,    1,     8,        9,   255,        256,
                                                 1024, 65536, 1U << 31, ~0U, 1ULL << 63, ~0ULL};
    const std::size_t at =
        find(program, [](std::uint8_t op) { return facts_of(op).operand != Operand::kNothing; });
    if (at == program.size()) return;
    std::uint64_t number = kNumbers[below(std::size(kNumbers))];
    std::string& op = program[at];
    if (op.size() > 1 && below(2) == 0) number = static_cast<std::uint8_t>(op[1]) + below(3) - 1;
    std::memcpy(op.data() + 1, &number, std::min<std::size_t>(op.size() - 1, below(2) == 0 ? 1 : 8));
  }
  // A FRAME around the next few instructions, mostly of the right length.
  void frame(Program& program) {
    const auto at = place(program);
    std::uint64_t length = below(4) == 0 ? below(16) : 0;
    for (auto op = at; op != program.end() && op - at < 8; ++op) length += op->size();
    std::string made(9, static_cast<char>(kFrame));
    std::memcpy(made.data() + 1, &length, sizeof(length));
    program.insert(at, made);
  }

  Program::iterator place(Program& program) {
    return program.begin() + static_cast<std::ptrdiff_t>(below(program.size()));
  }
  // An instruction the test is true for, from a random place on; the program's size when there is none.
  template <class Test> std::size_t find(const Program& program, Test test) {
    for (std::size_t i = below(program.size()); i < program.size(); ++i)
      if (!program[i].empty() && test(static_cast<std::uint8_t>(program[i][0]))) return i;
    return program.size();
  }

  Random& random_;
};

Program instructions(std::string_view text) {
  Program program;
  std::uint64_t at = 0;
  while (const auto instruction = decode(text, at)) {
    program.emplace_back(text.substr(at, instruction->next - at));
    at = instruction->next;
  }
  if (at < text.size()) program.emplace_back(text.substr(at));
  return program;
}

}  // namespace

bool mutate_pickle(std::string& text, Random& random) {
  Program program = instructions(text);
  if (program.size() < 3) return false;
  Mutator mutator(random);
  for (std::size_t changes = 1 + below(random, 3); changes > 0; --changes) mutator.change(program);
  text.clear();
  for (const std::string& op : program) text += op;
  return true;
}

}  // namespace cairn::fuzz
