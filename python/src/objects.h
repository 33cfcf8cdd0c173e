// Python objects out of what a checkpoint's description holds beside DCP's own data: what a planner left,
// attributes and places of somebody's own.
//
// The engine reads the pickle; here plain data become Python's, and objects are made of
// torch.distributed.checkpoint's dataclasses and of classes derived from them, if they are imported already.
// An object gets its attributes and nothing else: no __init__, __new__, __setstate__, property or metaclass
// of anybody's is run. Everything else is Error(kUnsupported), by its name.
#pragma once

#include <string_view>

#include "cairn/state_dict.h"
#include "python.h"

namespace cairn::python {

// `file` stands for it in errors.
nb::object object_of_pickle(std::string_view pickle, std::string_view file);
nb::object object_of_value(const Value& value, std::string_view file);

// A pickle that Python made for a description, after a look whether it will be read again. `what` it is, for
// errors.
Value readable_pickle(std::string_view pickle, const std::string& what);

}  // namespace cairn::python
