// Metadata and items as rows of plain Python, from which cairn.torch makes torch's dataclasses and back.
//
//   tensor  (fqn, dtype, layout, requires_grad, memory_format, pin_memory, size, [(offsets, sizes), ...])
//   object  (fqn,)
//   place   (fqn, offset | None, hint | None, file, offset, length, [transform, ...])
#pragma once

#include <vector>

#include "cairn/metadata.h"
#include "cairn/plan.h"
#include "python.h"

namespace cairn::python {

SaveId to_save_id(std::string_view hex);

nb::list entry_rows(const Metadata& metadata);
nb::list place_rows(const Metadata& metadata);
// {fqn: path}, None, or False when it is something else: then foreign_planner_data is.
nb::object paths(const Metadata& metadata);
// Objects as objects.h makes them; `file` stands for the description in errors.
nb::object foreign_planner_data(const Metadata& metadata, const std::string& file);
nb::dict extra_objects(const Metadata& metadata, const std::string& file);

// The inverse. `planner_data` is None, {fqn: path}, or bytes: a pickle of something else.
Metadata make_metadata(nb::list entries, nb::object planner_data);
WriteResult to_result(nb::handle place);
nb::tuple to_row(const WriteResult& result);

}  // namespace cairn::python
