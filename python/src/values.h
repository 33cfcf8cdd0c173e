// Nested Python data as the engine's values and back. Arrays are described by Python and handed out as bytes,
// so that nothing here needs numpy to be built or imported.
#pragma once

#include "cairn/state_dict.h"
#include "python.h"

namespace cairn::python {

// A state of dicts, lists, plain values and arrays. Everything that is none of the first three is shown to
// `describe(object, name)`: it gives (dtype, address, shape, strides in elements) of an array, or a plain
// value to take instead, or raises. What it described is appended to `kept` and must outlive the result.
StateDict to_state(const nb::dict& state, nb::handle describe, nb::list kept);

// A value as Python's. A tensor becomes of_tensor(dtype, shape, elements, name); None: there can be none. A
// class of somebody's own is Error(kUnsupported), which names its place.
nb::object to_object(const Value& value, Path where, nb::handle of_tensor);

// Puts loaded values into the containers that `state` was made of. Tensors are left alone: their memory is
// filled.
void give_back(const StateDict& loaded, const nb::dict& state);

// A contiguous tensor's elements as a numpy array of bytes that owns them: nothing is copied.
nb::object to_elements(const Tensor& tensor);

}  // namespace cairn::python
