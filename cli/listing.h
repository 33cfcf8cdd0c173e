// Which entries of a checkpoint a listing shows, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/checkpoint.h"

namespace cairn::cli {

struct Listing {
  const Checkpoint* checkpoint = nullptr;
  std::vector<std::uint32_t> tensors;  // positions in checkpoint->tensors()
  std::vector<std::uint32_t> objects;
  std::uint64_t bytes = 0;  // of all of these; stops at 2^64 - 1
  bool partial = false;     // a pattern was given

  const TensorSummary& tensor(std::uint32_t position) const { return checkpoint->tensors()[position]; }
  const ObjectSummary& object(std::uint32_t position) const { return checkpoint->objects()[position]; }
};

enum class Order { kStored, kName, kSize };

// An empty `glob` takes everything. Error(kNotFound) when it takes nothing.
Listing make_listing(const Checkpoint& checkpoint, const std::string& glob, Order order);

class Output;

struct TableOptions {
  bool chunks = false;  // below each tensor, its chunks
};
void print_table(const Listing& listing, const TableOptions& options, Output& out);
void print_tree(const Listing& listing, std::size_t max_depth, Output& out);
void print_json(const Listing& listing, Output& out);
void print_totals(const Listing& listing, Output& out);  // "12 tensors, 3 objects, 1.2 GiB in 4 files"

}  // namespace cairn::cli
