// Saves float32 tensors as float16. The plan must say so too: other ranks and the metadata go by it.
#include <cstring>

#include "planned_save.h"

namespace {

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

}  // namespace

int main() {
  cairn::Tensor weight = zeros({2, 2});
  const float values[] = {1.0F, 0.5F, 65504.0F, 1e-9F};
  std::memcpy(weight.bytes().data(), values, sizeof values);
  cairn::StateDict state;
  state.set("w", weight);
  state.set("ids", cairn::Tensor::zeros(cairn::DType::kInt64, {3}));

  std::vector<HalfPlanner> planners(1);
  const PlannedSave save = plan_save(planners, {state});
  for (const cairn::WriteItem item : save.plans[0].items) {
    const cairn::Tensor data = planners[0].resolve_data(item).get<cairn::Tensor>();
    std::cout << item.index.fqn << " " << cairn::name_of(item.tensor_data->properties.dtype) << " "
              << data.bytes().size() << " bytes\n";
  }
  return 0;
}
