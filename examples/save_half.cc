// Saves float32 tensors as float16. The plan must say so too: other ranks and the metadata go by it.
#include <cairn/cairn.h>
#include <cairn/planner.h>

#include <iostream>

class HalfPlanner : public cairn::DefaultSavePlanner {
 public:
  cairn::SavePlan create_local_plan() override {
    cairn::SavePlan plan = DefaultSavePlanner::create_local_plan();
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      cairn::WriteItem item = plan.items[i];
      if (!item.tensor_data || item.tensor_data->properties.dtype != cairn::DType::kFloat32) continue;
      item.tensor_data->properties.dtype = cairn::DType::kFloat16;
      plan.items.set(i, item);
    }
    return plan;
  }

  cairn::Value transform_object(const cairn::WriteItem& item, cairn::Value object) override {
    cairn::Value value = DefaultSavePlanner::transform_object(item, std::move(object));
    const cairn::Tensor* tensor = value.get_if<cairn::Tensor>();
    if (tensor == nullptr || tensor->view().dtype != cairn::DType::kFloat32) return value;
    cairn::Tensor half = cairn::Tensor::empty(cairn::DType::kFloat16, tensor->view().shape);
    cairn::copy(tensor->view(), half.view());
    return half;
  }
};

int main() {
  cairn::Tensor weight = cairn::Tensor::zeros(cairn::DType::kFloat32, {2, 2});
  weight.at<float>({0, 1}) = 0.1F;
  HalfPlanner planner;
  cairn::save({{"w", weight}}, "memory://half", {.planner = &planner});

  cairn::StateDict state = {{"w", weight}};
  cairn::load(state, "memory://half");  // into float32 again
  std::cout << cairn::to_string(cairn::load_into_new("memory://half")) << " " << weight.at<float>({0, 1})
            << "\n";
}
