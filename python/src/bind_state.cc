// TorchState as Python sees it.

#include "state.h"

using namespace nb::literals;

namespace cairn::python {

void bind_state(nb::module_& m) {
  nb::class_<TorchState>(m, "State")
      .def(
          "__init__",
          [](TorchState* self, nb::dict state, nb::object of_tensor, nb::object of_object, bool flatten) {
            new (self) TorchState(std::move(state), {std::move(of_tensor), std::move(of_object)}, flatten,
                                  FlattenRule::kCurrent);
          },
          "state"_a, "of_tensor"_a, "of_object"_a.none(), "flatten"_a = true)
      .def("__len__", &TorchState::size)
      .def("has_pieces", &TorchState::has_pieces)
      .def("names",
           [](const TorchState& self) {
             nb::list names;
             for (const auto& [name, value] : self.flat()) names.append(to_str(std::get<std::string>(name)));
             return names;
           })
      .def("freeze", &TorchState::freeze, "encode"_a)
      .def("put", &TorchState::put, "name"_a, "value"_a.none());
}

}  // namespace cairn::python
