// Checksums of a snapshot, from when it was taken until it is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "background/staging_copy.h"
#include "base/bytes.h"

namespace cairn {

// A flip in memory between the two calls is found. Copies in a device's memory are left out.
class StagingSums {
 public:
  explicit StagingSums(int threads) : threads_(threads) {}

  // When all is copied. The memory must live until the last require_same().
  void take(const StagingWork& work);

  // Error(kCorrupt) names the tensor.
  void require_same() const;

 private:
  struct SummedBytes {
    ByteSpan bytes;
    std::size_t tensor;  // in names_
    std::uint64_t sum = 0;
  };
  void cut(ByteSpan bytes, std::size_t tensor);

  const int threads_;
  std::vector<std::string> names_;
  std::vector<SummedBytes> pieces_;
};

}  // namespace cairn
