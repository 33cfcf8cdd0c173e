// Where the elements of a tensor in a torch.save archive are, for read_box.
#pragma once

#include "format/torch_file.h"
#include "reading/read_box.h"

namespace cairn {

// Borrows the file's source.
inline StoredElements elements_of(const TorchFile& file, const TorchFile::Stored& stored) {
  StoredElements elements;
  elements.source = &file.source();
  elements.storage_offset = stored.data_offset;
  elements.storage_bytes = stored.storage_bytes;
  elements.first_element = stored.first_element;
  elements.dtype = stored.tensor.dtype;
  elements.shape = stored.tensor.shape;
  elements.strides = stored.tensor.strides;
  if (stored.crc != 0) elements.crc = stored.crc;
  return elements;
}

}  // namespace cairn
