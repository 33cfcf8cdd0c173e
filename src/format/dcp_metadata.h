// `.metadata` files of torch.distributed.checkpoint, all versions, both ways.
#pragma once

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"

namespace cairn {

// Reads a `.metadata` (or rank-local `__0.metadata`) file of torch 1.13 or later. Runs nothing: objects of
// unknown classes are kept as Opaque where DCP allows any object (planner_data, extra attributes), and
// are Error(kUnsupported) elsewhere.
Metadata read_dcp_metadata(const ByteSource& source, const Limits& limits = {});

// The same, opcode by opcode, without the shortcuts for what CPython writes. For tests: both must agree.
Metadata read_dcp_metadata_plainly(const ByteSource& source, const Limits& limits = {});

// Writes one that torch 2.1 and later reads (pickle protocol 4).
void write_dcp_metadata(ByteSink& sink, const Metadata& metadata);

}  // namespace cairn
