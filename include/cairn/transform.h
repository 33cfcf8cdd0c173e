// What a caller of his own does to the bytes of each item, on their way into a file and back.
//
// An item is an archive of torch.save. Whatever an ItemTransform makes of it is what is stored, summed and
// checked; the metadata keeps a list of words (DCP's `transform_descriptors`) that say how to undo it.
//
//   class Scrambler : public ItemTransform { ... };
//   save(state, "run/step-1000", {.write = {.transform = std::make_shared<Scrambler>()}});
//   load(state, "run/step-1000", {.read = {.transform = std::make_shared<Scrambler>()}});
//
// Threads: encode and decode are called by many at once; what they return is used by one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/plan.h"
#include "cairn/source.h"

namespace cairn {

// The bytes of one item, going in.
class ItemEncoder {
 public:
  virtual ~ItemEncoder() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;  // of the archive, from its front to its end
  // Once, last. Returns what the metadata is to say, in the order to undo it.
  virtual std::vector<std::string> finish() = 0;
};

// The bytes of one item, coming out.
class ItemDecoder {
 public:
  virtual ~ItemDecoder() = default;
  // Fills `to` with what comes next. Less than its size only at the end.
  virtual std::size_t read(std::span<std::byte> to) = 0;
};

class ItemTransform {
 public:
  virtual ~ItemTransform() = default;

  // `store` takes what goes into the file. It may be called until finish() returns.
  using Store = std::function<void(std::span<const std::byte>)>;
  virtual std::unique_ptr<ItemEncoder> encode(const WriteItem& item, Store store) = 0;

  // Whether this undoes what the metadata says of an item; otherwise the reader does, if it knows how.
  virtual bool decodes(const std::vector<std::string>& descriptors) const { return !descriptors.empty(); }
  // `stored` is the item as it lies in the file. How much may come out is the reader's to say: one that gives
  // more is not asked any further. An item that is too large for memory may be decoded twice.
  virtual std::unique_ptr<ItemDecoder> decode(const ReadItem& item,
                                              const std::vector<std::string>& descriptors,
                                              std::shared_ptr<const ByteSource> stored) = 0;
};

}  // namespace cairn
