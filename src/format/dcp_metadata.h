// `.metadata` files of torch.distributed.checkpoint, all versions, both ways.
#pragma once

#include <string>
#include <string_view>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"

namespace cairn {

// Reads a `.metadata` (or rank-local `__0.metadata`) file of torch 1.13 or later. Runs nothing: objects of
// unknown classes are kept where DCP allows any object (planner_data, storage_data, extra attributes of
// Metadata), and are Error(kUnsupported) elsewhere. Such a part is a plain Value if that says all there is,
// else one Opaque as a whole, in which what is shared stays shared.
Metadata read_dcp_metadata(const ByteSource& source, const Limits& limits = {});

// The same, opcode by opcode, without the shortcuts for what CPython writes. For tests: both must agree.
Metadata read_dcp_metadata_plainly(const ByteSource& source, const Limits& limits = {});

// What a torch appended to the five values of TensorProperties is written as this attribute of
// TensorStorageMetadata, a list: others ignore it, while a longer tuple is refused by every released torch.
inline constexpr std::string_view kPropertiesExtra = "cairn_properties_extra";

// Writes one that torch 2.1 and later reads (pickle protocol 4).
void write_dcp_metadata(ByteSink& sink, const Metadata& metadata);

// The same as bytes that read_dcp_metadata takes. Planner data and attributes of others may be anything; what
// nobody could read back is an Error of the kind that reading it would be.
std::string encode_dcp_metadata(const Metadata& metadata, const Limits& limits = {});

}  // namespace cairn
