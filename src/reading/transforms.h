// What a writer did to an item after it was encoded, undone: DCP's stream transforms.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/source.h"
#include "cairn/transform.h"

namespace cairn {

// The item's bytes before the transforms, which are given in the order to undo them: today zstd
// ("stream.zstd/1"), in memory. Error kUnsupported for others (by name), kCorrupt for a broken stream,
// kLimit for one that grows beyond `max_bytes`.
std::shared_ptr<const ByteSource> undo_transforms(std::shared_ptr<const ByteSource> item,
                                                  const std::vector<std::string>& transforms,
                                                  std::uint64_t max_bytes);

// The same for items of any size: what is more than `most_in_memory` goes to a file without a name in
// `directory`, and is gone with the source.
std::shared_ptr<const ByteSource> undo_transforms_anywhere(const ByteSource& item,
                                                           const std::vector<std::string>& transforms,
                                                           std::uint64_t max_bytes,
                                                           std::uint64_t most_in_memory,
                                                           const std::string& directory);

// Whether an UnpackedSource can undo them.
bool can_be_streamed(const std::vector<std::string>& transforms);
// From front to back, for one; borrows the source. Errors as above.
std::unique_ptr<ItemDecoder> open_stream(const ByteSource& item, std::uint64_t max_bytes);
// What somebody else's decoder gives, as long as it is not more than `max_bytes`.
std::unique_ptr<ItemDecoder> bounded(std::unique_ptr<ItemDecoder> decoder, std::uint64_t max_bytes);
std::string read_to_end(ItemDecoder& decoder);

// The same, as the bytes themselves.
std::string undo_transforms_in_memory(const ByteSource& item, const std::vector<std::string>& transforms,
                                      std::uint64_t max_bytes);

}  // namespace cairn
