// How a message between ranks begins.
#pragma once

#include <cstdint>

#include "plan/wire.h"

namespace cairn {

inline constexpr std::uint32_t kPlanMagic = 0x4e4c5043;  // "CPLN"
inline constexpr std::size_t kMostWireRank = 255;        // dimensions of a tensor

// Then, in this order: names u32 lengths, names text, dims u8 ranks, dims i64 values, specs (TensorSpec
// packed, u64), rows (ItemRow), paths, attached values.
struct PlanHeader {
  static constexpr std::uint8_t kUsable = 1;
  static constexpr std::uint8_t kHasPaths = 2;
  static constexpr std::uint8_t kHasValue = 4;  // planner_data is a Value

  std::uint32_t magic = kPlanMagic;
  std::uint16_t version = kPlanWireVersion;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint32_t items = 0;
  std::uint32_t names = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t dims = 0;
  std::uint32_t dim_values = 0;
  std::uint32_t specs = 0;
  std::uint32_t path_entries = 0;
  std::uint32_t path_bytes = 0;
  std::uint32_t attached_bytes = 0;
};
static_assert(sizeof(PlanHeader) == 52);

// Magic, version and kind are right; rank and world size make sense.
PlanHeader read_header(ByteSpan message, PlanMessage kind, int world_size);

}  // namespace cairn
