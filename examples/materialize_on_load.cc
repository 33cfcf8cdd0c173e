// Makes a tensor while it is loaded, in a form of its own: the checkpoint has float32, the model keeps 8 bits
// and a scale.
//
//   materialize_on_load CHECKPOINT
//
// The state holds a tensor without memory. resolve_tensor hands the reader a float32 buffer for each piece;
// commit_tensor makes the tensor when the first piece is there, and converts the piece into its place.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <mutex>

#include "planned_load.h"

namespace {

// A tensor that says what it will be and has no memory yet.
cairn::Tensor promise(cairn::DType dtype, const cairn::Shape& shape) {
  return {cairn::TensorView::contiguous(nullptr, dtype, shape), nullptr};
}

class QuantizingPlanner : public cairn::DefaultLoadPlanner {
 public:
  explicit QuantizingPlanner(float scale) : scale_(scale) {}

  cairn::TensorView resolve_tensor(const cairn::ReadItem& item) override {
    cairn::Tensor buffer = cairn::Tensor::empty(cairn::DType::kFloat32, item.lengths);
    const std::lock_guard lock(mutex_);  // readers call from many threads
    return buffers_.emplace(buffer.view().data, buffer).first->second.view();
  }

  void commit_tensor(const cairn::ReadItem& item, const cairn::TensorView& piece) override {
    const std::lock_guard lock(mutex_);
    auto* value = reinterpret_cast<float*>(piece.data);
    for (std::int64_t i = 0; i < piece.numel(); ++i) {
      value[i] = std::clamp(std::nearbyint(value[i] / scale_), -128.0F, 127.0F);
    }
    cairn::copy(piece, transform_tensor(item, made(item.dest_index)));  // float32 to int8
    buffers_.erase(piece.data);
  }

  const cairn::Tensor& tensor(const std::string& fqn) const { return made_.at(fqn); }

 private:
  cairn::TensorView made(const cairn::MetadataIndex& index) {
    auto [at, is_new] = made_.try_emplace(index.fqn);
    if (is_new) {
      const cairn::TensorView promised = lookup_tensor(index);
      at->second = cairn::Tensor::zeros(promised.dtype, promised.shape);
    }
    return at->second.view();
  }

  float scale_;
  std::mutex mutex_;
  std::map<std::byte*, cairn::Tensor> buffers_;  // pieces on their way
  std::map<std::string, cairn::Tensor> made_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: materialize_on_load CHECKPOINT\n";
    return 2;
  }
  try {
    cairn::StateDict state;
    state.set("model", cairn::Dict{{"w", promise(cairn::DType::kInt8, {8, 8})}});

    QuantizingPlanner planner(0.5F);
    planned_load(*cairn::Checkpoint::open(argv[1]), planner, state);

    const cairn::Tensor& w = planner.tensor("model.w");
    std::cout << "model.w: " << cairn::name_of(w.view().dtype) << " " << cairn::to_string(w.view().shape)
              << ", " << w.bytes().size() << " bytes, last element " << std::to_integer<int>(w.bytes().back())
              << " x 0.5\n";
  } catch (const cairn::Error& e) {
    std::cerr << "materialize_on_load: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
