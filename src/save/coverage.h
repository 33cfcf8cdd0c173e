// Whether what the ranks wrote is what the checkpoint's description promises.
#pragma once

#include <vector>

#include "cairn/checkpoint_storage.h"
#include "cairn/metadata.h"

namespace cairn {

// Error(kInternal) unless every chunk and every object of the metadata was written exactly once, by anybody.
// Names the first tensor that is wrong.
void require_covered(const Metadata& metadata, const std::vector<WrittenData>& all);

}  // namespace cairn
