// Writes a DCP checkpoint out of another source, as a save would.
#pragma once

#include <vector>

#include "cairn/convert.h"
#include "convert/convert_entries.h"
#include "convert/convert_place.h"

namespace cairn {

// Fills the rest of the report. With `options.dry_run` nothing is written.
void convert_to_dcp(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                    ConvertPlace& place, const ConvertOptions& options, ConvertReport& report);

}  // namespace cairn
