// Messages that are wrong in one place only, and both sides of every limit.

#include <gtest/gtest.h>

#include "base/wire_bytes.h"
#include "plan/item_tables.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_values.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace wire_limits_test {

using namespace std::literals;

std::uint64_t varint_of(const std::string& bytes) {
  WireReader reader(as_bytes(bytes));
  const std::uint64_t value = reader.varint();
  reader.finish();
  return value;
}

TEST(WireBytes, VarintsArriveAsTheyLeft) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    for (const std::uint64_t value : {power - 1, power, power + 1, ~power}) {
      std::string bytes;
      put_varint(bytes, value);
      EXPECT_EQ(varint_of(bytes), value);
    }
  }
}

TEST(WireBytes, AVarintHasOneSpelling) {
  EXPECT_EQ(varint_of(std::string(9, '\xff') + "\1"), ~std::uint64_t{0});
  for (const std::string& bytes : {std::string(9, '\xff') + "\2", std::string(9, '\x80') + "\x81\1",
                                   "\x80\0"s, "\x81\x80\0"s, "\x80"s, ""s})
    EXPECT_EQ(error_of([&] { varint_of(bytes); }).code(), ErrorCode::kCorrupt)
        << testing::PrintToString(bytes);
}

// None in so many lists, tuples or dicts.
Value nested(int levels, int kind) {
  Value value = None{};
  for (int i = 0; i < levels; ++i) {
    if (kind == 0) value = List{std::move(value)};
    if (kind == 1) value = Tuple{List{std::move(value)}};
    if (kind == 2) value = Dict{{"k", std::move(value)}};
    if (kind == 3) value = Dict{{7, std::move(value)}};
  }
  return value;
}

TEST(WireBytes, AttachedDataNestUpTo64Levels) {
  const std::string prefix[] = {"\x08\1"s, "\x09\1"s, "\x0a\1\6\1k"s, "\x0a\1\3\7\0\0\0\0\0\0\0"s};
  for (int kind = 0; kind < 4; ++kind) {
    std::string bytes;
    put_value(bytes, nested(64, kind));
    WireReader in(as_bytes(bytes));
    EXPECT_EQ(read_value(in), nested(64, kind)) << kind;
    EXPECT_EQ(error_of([&] { put_value(bytes, nested(65, kind)); }).code(), ErrorCode::kLimit) << kind;
    std::string one;
    put_value(one, nested(1, kind));
    ASSERT_EQ(one, prefix[kind] + '\0');
    std::string deeper;
    for (int i = 0; i < 65; ++i) deeper += prefix[kind];
    deeper += '\0';
    WireReader deep(as_bytes(deeper));
    EXPECT_EQ(error_of([&] { read_value(deep); }).code(), ErrorCode::kCorrupt) << kind;
  }
}

// A tensor's item (row 0), an object's with its size (row 1), and one without (row 2).
SavePlan small_plan() {
  WriteItem sized = WriteItem::bytes("sized");
  sized.bytes_io_data = BytesIOWriteData{77};
  return plan_of({rows_of("w", 0, 2, 4), sized, WriteItem::bytes("o")});
}

// Where the parts of a message begin.
struct Parts {
  explicit Parts(const std::string& message) {
    const auto h = load<PlanHeader>(message.data());
    lengths = sizeof(PlanHeader);
    text = lengths + 4 * h.names;
    ranks = text + h.name_bytes;
    values = ranks + h.dims;
    specs = values + 8 * h.dim_values;
    rows = specs + 8 * h.specs;
    paths = rows + sizeof(ItemRow) * h.items;
  }
  std::size_t lengths, text, ranks, values, specs, rows, paths;
};

ErrorCode refusal(const std::string& message) {
  return error_of([&] { decode_global_plan(as_bytes(message), 0, 1); }).code();
}

std::string with_row(std::size_t i, std::uint32_t ItemRow::*field, std::uint32_t value) {
  std::string message = encode_global_plan(small_plan(), 0, 1);
  char* at = message.data() + Parts(message).rows + i * sizeof(ItemRow);
  auto row = load<ItemRow>(at);
  row.*field = value;
  store(at, row);
  return message;
}

TEST(WireRows, ARowThatCannotBeIsCorrupt) {
  const std::string good = encode_global_plan(small_plan(), 0, 1);
  ASSERT_EQ(decode_global_plan(as_bytes(good), 0, 1), small_plan());
  const auto header = load<PlanHeader>(good.data());
  // Of lists there are the tensor's offsets, sizes, global size, and the list of one number of "sized".
  const std::uint32_t list_of_one =
      load<ItemRow>(good.data() + Parts(good).rows + sizeof(ItemRow)).chunk_sizes;
  const std::uint32_t list_of_two = load<ItemRow>(good.data() + Parts(good).rows).chunk_sizes;
  struct Case {
    std::size_t row;
    std::uint32_t ItemRow::*field;
    std::uint32_t value;
    bool fine;
  };
  for (const auto& [row, field, value, fine] : std::vector<Case>{
           {0, &ItemRow::type, 0, false},
           {0, &ItemRow::type, 1, true},
           {0, &ItemRow::type, 4, false},
           {0, &ItemRow::tensor, kNoEntry, false},
           {0, &ItemRow::chunk_offsets, kNoEntry, false},
           {0, &ItemRow::chunk_sizes, kNoEntry, false},
           {0, &ItemRow::offset, kNoEntry, true},
           {0, &ItemRow::name, header.names - 1, true},
           {0, &ItemRow::name, header.names, false},
           {0, &ItemRow::offset, header.dims - 1, true},
           {0, &ItemRow::offset, header.dims, false},
           {0, &ItemRow::tensor, header.specs, false},
           {1, &ItemRow::chunk_sizes, list_of_two, false},
           {1, &ItemRow::chunk_sizes, kNoEntry, true},
           {2, &ItemRow::chunk_sizes, list_of_one, true},
           {2, &ItemRow::tensor, 0, false},
           {2, &ItemRow::chunk_offsets, 0, false},
       }) {
    const std::string message = with_row(row, field, value);
    if (fine) {
      EXPECT_NO_THROW(decode_global_plan(as_bytes(message), 0, 1)) << row << " " << value;
    } else {
      EXPECT_EQ(refusal(message), ErrorCode::kCorrupt) << row << " " << value;
    }
  }
}

TEST(WireRows, ATensorThatCannotBeIsCorrupt) {
  const std::string good = encode_global_plan(small_plan(), 0, 1);
  const std::size_t at = Parts(good).specs;
  const auto with = [&](auto change) {
    TensorSpec spec = TensorSpec::unpacked(load<std::uint64_t>(good.data() + at));
    change(spec);
    std::string message = good;
    store(message.data() + at, spec.packed());
    return message;
  };
  const std::uint32_t dims = load<PlanHeader>(good.data()).dims;
  EXPECT_NO_THROW(decode_global_plan(
      as_bytes(with([](TensorSpec& s) { s.dtype = static_cast<DType>(kDTypeCount - 1); })), 0, 1));
  EXPECT_EQ(refusal(with([](TensorSpec& s) { s.dtype = static_cast<DType>(kDTypeCount); })),
            ErrorCode::kCorrupt);
  EXPECT_NO_THROW(
      decode_global_plan(as_bytes(with([](TensorSpec& s) { s.layout = Layout::kJagged; })), 0, 1));
  EXPECT_EQ(refusal(with([](TensorSpec& s) { s.layout = static_cast<Layout>(8); })), ErrorCode::kCorrupt);
  EXPECT_NO_THROW(decode_global_plan(
      as_bytes(with([](TensorSpec& s) { s.memory_format = MemoryFormat::kPreserve; })), 0, 1));
  EXPECT_EQ(refusal(with([](TensorSpec& s) { s.memory_format = static_cast<MemoryFormat>(3); })),
            ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(with([](TensorSpec& s) { s.extra = 1; })), ErrorCode::kCorrupt);
  EXPECT_NO_THROW(decode_global_plan(as_bytes(with([&](TensorSpec& s) { s.size = dims - 1; })), 0, 1));
  EXPECT_EQ(refusal(with([&](TensorSpec& s) { s.size = dims; })), ErrorCode::kCorrupt);
}

TEST(WireRows, WhatNoEntryTakesIsCorrupt) {
  const std::string good = encode_global_plan(small_plan(), 0, 1);
  const Parts parts(good);
  std::string message = good;  // the last name ends one letter early
  const std::size_t last = parts.text - 4;
  store(message.data() + last, load<std::uint32_t>(message.data() + last) - 1);
  EXPECT_EQ(refusal(message), ErrorCode::kCorrupt);
  for (std::size_t list = parts.ranks; list < parts.values; ++list) {  // one of the lists has one number less
    message = good;
    --message[list];
    EXPECT_EQ(refusal(message), ErrorCode::kCorrupt) << list - parts.ranks;
  }
}

TEST(Wire, AWorldOfOneRankHasAPlan) {
  PlanGather gather(1);
  gather.add(as_bytes(encode_local_plan(small_plan(), 0, 1)));
  EXPECT_EQ(gather.take(), std::vector{small_plan()});
}

}  // namespace wire_limits_test
}  // namespace cairn
