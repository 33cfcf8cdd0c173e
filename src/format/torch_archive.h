// The parts of a torch.save archive: its records, and tensors in its pickle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sink.h"
#include "cairn/tensor.h"
#include "format/pickle_writer.h"
#include "format/zip.h"

namespace cairn {

// Writes records and remembers what torch's serialization id is made of: their names and checksums.
class TorchArchive {
 public:
  TorchArchive(ByteSink& sink, std::string name, std::uint64_t alignment);

  void add_head(std::string_view program);  // data.pkl and the records that torch puts after it
  void add(std::string_view name, ByteSpan bytes);
  // A record whose bytes the caller writes: between the two calls, `size` of them.
  void begin_elsewhere(std::string_view name, std::uint64_t size);
  void end_elsewhere(std::uint32_t crc);
  std::uint64_t position() const {
    return zip_.position();
  }                        // bytes so far; of a record elsewhere, its start
  std::uint64_t finish();  // the records that come last, and the directory; returns the archive's length

 private:
  ZipWriter zip_;
  std::uint64_t alignment_;
  std::uint64_t elsewhere_ = 0;
  std::string names_;
  std::vector<std::uint32_t> crcs_;
};

// A storage as the pickle names it: ('storage', torch.FloatStorage, '0', 'cpu', 4).
struct StorageName {
  std::optional<DType> dtype;  // nullopt: tensors of several types lie in it
  std::uint64_t bytes = 0;
  std::string key = "0";  // record data/{key}
};

// The call that makes a tensor: from `offset` of the storage on, in elements.
void write_torch_tensor(pickle::Writer& w, DType dtype, const Shape& shape, const Shape& strides,
                        std::uint64_t offset, const StorageName& storage, bool requires_grad = false);

// The same for a tensor that was read from another archive: a parameter stays one.
void write_stored_tensor(pickle::Writer& w, const StoredTensor& tensor, std::uint64_t offset,
                         const StorageName& storage);

}  // namespace cairn
