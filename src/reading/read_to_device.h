// Reads selected elements of one stored tensor to a device.
#pragma once

#include <functional>

#include "device/device_sender.h"
#include "reading/read_box.h"

namespace cairn {

// As read_box, for a destination in a device's memory: the elements pass through the sender's buffers, and
// are there after its wait(). `file_offset` is where the source begins in its file: reads end at the borders
// of the file's blocks. `each` is called with every stretch that was read; with `sum` it knows its CRC-32.
void read_to_device(const StoredElements& from, const Selection& selection, const TensorView& to,
                    std::uint64_t file_offset, bool sum, DeviceSender& sender,
                    const std::function<void(const ReadRun&)>& each);

}  // namespace cairn
