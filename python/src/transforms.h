// Transforms of items that are written in Python: torch's _StorageWriterTransforms and
// _StorageReaderTransforms, or whatever has their methods.
//
//   transform_save_stream(write_item, raw_stream) -> (stream, [descriptor, ...])
//   transform_load_stream(read_item, descriptors, raw_stream) -> stream
#pragma once

#include <memory>

#include "cairn/transform.h"
#include "python.h"

namespace cairn::python {

// One that has both methods is good for both ways; Error(kUnsupported) when one that is missing is needed. A
// reader's that is torch's own undoes what the engine does not know; one of somebody's own sees every item.
std::shared_ptr<ItemTransform> python_transform(nb::object transforms);

// What Python holds of it: cairn._engine.Transforms.
struct Transforms {
  std::shared_ptr<ItemTransform> transform;
};

}  // namespace cairn::python
