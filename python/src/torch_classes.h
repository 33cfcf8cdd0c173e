// The classes that objects of a description may have: torch.distributed.checkpoint's own, and those derived
// from them.
//
// They are found among the modules that are imported already, by what stands in the modules and classes
// themselves: nobody's __getattr__, metaclass or import is run.
#pragma once

#include <string_view>
#include <vector>

#include "python.h"

namespace cairn::python {

// What an imported module has under a name, "Outer.Inner" for a class in a class; invalid when there is no
// such thing.
nb::object find_global(std::string_view module, std::string_view name);
// The same of torch.
inline nb::object find_torchs(std::string_view name) { return find_global("torch", name); }
// torch.float32, torch.strided, torch.contiguous_format and their like.
bool is_torch_constant(nb::handle value);

// The attributes of an object, whatever its class says of them.
nb::dict attributes_of(nb::handle object);
// What stands in a dict; null when nothing does.
nb::handle find_in(nb::handle dict, std::string_view key);

class TorchClasses {
 public:
  TorchClasses();

  bool is_dataclass(nb::handle type) const { return is_one_of(dataclasses_, type); }
  bool is_enum(nb::handle type) const { return is_one_of(enums_, type); }
  // Whether it is, or is derived from, one of the dataclasses, and an object of it is nothing but its
  // attributes: who has a __setstate__ or __del__ of its own wants them run.
  bool is_derived(nb::handle type) const;
  bool is_tensor_properties(nb::handle type) const;
  // The member with that value, or an invalid object.
  static nb::object member_of(nb::handle enumeration, nb::handle value);

 private:
  static bool is_one_of(const std::vector<nb::object>& types, nb::handle type);
  void note(const std::string& module, nb::handle value);

  std::vector<nb::object> dataclasses_, enums_;
};

}  // namespace cairn::python
