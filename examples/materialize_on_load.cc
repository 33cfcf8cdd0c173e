// Makes tensors of another kind while they are loaded: the checkpoint has float32, the model keeps 8 bits.
// resolve_tensor hands the reader a float32 buffer for each piece, commit_tensor converts it into its place.
#include <cairn/cairn.h>
#include <cairn/planner.h>

#include <cmath>
#include <iostream>
#include <map>
#include <mutex>

class QuantizingPlanner : public cairn::DefaultLoadPlanner {
 public:
  cairn::TensorView resolve_tensor(const cairn::ReadItem& item) override {
    cairn::Tensor buffer = cairn::Tensor::empty(cairn::DType::kFloat32, item.lengths);
    const std::lock_guard lock(mutex_);  // readers call from many threads
    return buffers_.emplace(buffer.view().data, buffer).first->second.view();
  }

  void commit_tensor(const cairn::ReadItem& item, const cairn::TensorView& piece) override {
    for (float& value : piece.values<float>()) value = std::nearbyint(value / 0.5F);
    cairn::copy(piece, DefaultLoadPlanner::resolve_tensor(item));  // float32 to int8
    const std::lock_guard lock(mutex_);
    buffers_.erase(piece.data);
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, cairn::Tensor> buffers_;  // pieces on their way
};

int main() {
  cairn::Tensor weight = cairn::Tensor::zeros(cairn::DType::kFloat32, {2, 2});
  weight.at<float>({1, 1}) = 63;
  cairn::save({{"w", weight}}, "memory://wide");
  const cairn::Tensor small = cairn::Tensor::zeros(cairn::DType::kInt8, {2, 2});
  cairn::StateDict state = {{"w", small}};
  QuantizingPlanner planner;
  cairn::load(state, "memory://wide", {.planner = &planner});
  std::cout << cairn::to_string(state) << " " << int{small.at<std::int8_t>({1, 1})} << " x 0.5\n";
}
