// inspect CHECKPOINT [TENSOR SLICE]: names, types and shapes of what a checkpoint holds; with a tensor
// and a slice such as "[0:2]", also how many bytes that part has and its first element, if it is float32.
#include <cstring>
#include <iostream>

#include "cairn/checkpoint.h"
#include "cairn/error.h"

namespace {

void list(const cairn::Checkpoint& checkpoint) {
  std::cout << cairn::name_of(checkpoint.format()) << "\n";
  for (const cairn::TensorSummary& tensor : checkpoint.tensors()) {
    std::cout << tensor.name << " " << cairn::name_of(tensor.dtype) << " " << cairn::to_string(tensor.shape)
              << "\n";
  }
}

void show_slice(const cairn::Checkpoint& checkpoint, const char* name, const char* slice) {
  const auto position = checkpoint.find_tensor(name);
  if (!position) throw cairn::Error(cairn::ErrorCode::kNotFound, "no such tensor").of_tensor(name);
  const cairn::Selection selection = cairn::parse_selection(slice, checkpoint.tensors()[*position].shape);
  const cairn::Tensor part = checkpoint.read(name, selection);

  std::cout << name << slice << ": shape " << cairn::to_string(part.view().shape) << ", "
            << part.bytes().size() << " bytes";
  if (part.view().dtype == cairn::DType::kFloat32 && !part.bytes().empty()) {
    float first = 0;
    std::memcpy(&first, part.bytes().data(), sizeof first);
    std::cout << ", first element " << first;
  }
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::cerr << "usage: inspect CHECKPOINT [TENSOR SLICE]\n";
    return 2;
  }
  try {
    const auto checkpoint = cairn::Checkpoint::open(argv[1]);
    list(*checkpoint);
    if (argc == 4) show_slice(*checkpoint, argv[2], argv[3]);
  } catch (const cairn::Error& e) {
    std::cerr << "inspect: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
