// What torch puts into its pickles besides plain data: tensors and parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/limits.h"
#include "format/pickle.h"
#include "format/torch_file.h"
#include "format/zip.h"

namespace cairn {

// The LeafReader for a data.pkl. Every tensor it makes has been checked against the archive's directory:
// its storage exists, is as long as the pickle says, and holds every element. Classes and tensors it does
// not know (quantised, sparse, conjugated views, tensor subclasses) are left to become Opaque.
class TorchLeaves {
 public:
  TorchLeaves(const ZipReader& zip, Budget& budget, const Limits& limits)
      : zip_(zip), budget_(budget), limits_(limits) {}

  bool read(const pickle::Graph& graph, pickle::Ref ref, Value& value);

  std::vector<TorchFile::Stored> take() { return std::move(tensors_); }

 private:
  struct Storage;
  struct Layout;

  std::optional<StoredTensor> tensor(const pickle::Graph& graph, pickle::Ref object);
  std::optional<StoredTensor> plain_tensor(const pickle::Graph& graph, pickle::Ref args, int version);
  std::optional<StoredTensor> parameter(const pickle::Graph& graph, pickle::Ref args);
  std::optional<Storage> storage(const pickle::Graph& graph, pickle::Ref persid) const;
  Shape shape(const pickle::Graph& graph, pickle::Ref tuple, std::string_view what) const;
  StoredTensor add(const Storage& storage, const Layout& layout);

  const ZipReader& zip_;
  Budget& budget_;
  const Limits& limits_;
  std::vector<TorchFile::Stored> tensors_;
  std::unordered_map<std::uint64_t, StoredTensor> known_;  // by Ref: an object met again is the same tensor
};

}  // namespace cairn
