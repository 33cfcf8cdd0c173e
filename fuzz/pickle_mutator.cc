// Changes pickles by whole opcodes, so that most of what libFuzzer tries gets past the first few of them.
//
// An input is cut into instructions; some are copied, moved, dropped or made up, memo numbers are pointed
// elsewhere, lengths and frames are made to lie. What cannot be decoded stays behind as one piece.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "format/pickle_ops.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace cairn::pickle;
using Program = std::vector<std::string>;  // one instruction each

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void change(Program& program) {
    switch (below(7)) {
      case 0: return copy(program);
      case 1: return drop(program);
      case 2: return std::swap(program[below(program.size())], program[below(program.size())]);
      case 3: return insert(program);
      case 4: return point_elsewhere(program);
      case 5: return change_operand(program);
      default: return frame(program);
    }
  }
  std::size_t below(std::size_t n) { return random_() % n; }

 private:
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

  std::minstd_rand random_;
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

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  Mutator mutator(seed);
  Program program = instructions({reinterpret_cast<const char*>(data), size});
  if (program.size() < 3 || mutator.below(4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t changes = 1 + mutator.below(3); changes > 0; --changes) mutator.change(program);
  std::string text;
  for (const std::string& op : program) text += op;
  text.resize(std::min(text.size(), max_size));
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
