// Printing one entry of a checkpoint.
#pragma once

#include <cstddef>
#include <string_view>

#include "cairn/checkpoint.h"

namespace cairn::cli {

class Output;

struct ShowOptions {
  bool full = false;
  int precision = 4;
  bool no_statistics = false;
  bool json = false;
};

// `slice` is the selection as typed, for the heading; empty for the whole tensor.
void show_tensor(const Checkpoint& checkpoint, std::size_t tensor, std::string_view slice,
                 const Selection& selection, const ShowOptions& options, Output& out);
void show_object(const Checkpoint& checkpoint, std::string_view name, const ShowOptions& options,
                 Output& out);

}  // namespace cairn::cli
