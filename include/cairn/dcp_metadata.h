// What a `.metadata` file of DCP holds, wherever its bytes come from.
#pragma once

#include <string>
#include <string_view>

#include "cairn/metadata.h"

namespace cairn {

// Runs nothing. `name` stands for the file in errors; what only Python's pickle knows is Error(kUnsupported),
// except where DCP allows any object.
Metadata parse_dcp_metadata(std::string_view bytes, std::string name);

}  // namespace cairn
