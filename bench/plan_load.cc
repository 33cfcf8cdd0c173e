// Planning what a rank reads: 10,000 wanted boxes out of a checkpoint of 1,000,000 chunks, one thread.
//
//   plan_load           rows of its own, one JSON object per line
//   plan_load torch     the time for the case that bench/parts/plan_load.py also gives to torch
//
// Times hold everything from the metadata to the items: the index of names and of chunks too. A row is the
// best of several repetitions, by the processor's time, which other programs on the machine do not change.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "cairn/plan_steps.h"

namespace {

using namespace cairn;

constexpr int kRepetitions = 3;
constexpr double kTargetMs = 200;

double best_ms(const std::function<std::size_t()>& work, std::size_t& items) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    const std::clock_t start = std::clock();
    items = work();
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

void report(std::string_view name, const std::function<std::size_t()>& work, double target = kTargetMs) {
  std::size_t items = 0;
  const double ms = best_ms(work, items);
  const std::string goal = target > 0 ? fmt::format(R"("target": {}, )", target) : "";
  fmt::print(R"({{"name": "{}", "cairn": {:.1f}, "unit": "ms", {}"note": "{} read items"}})"
             "\n",
             name, ms, goal, items);
  std::fflush(stdout);
}

void report_tensor(std::string_view name, const TensorStorageMetadata& stored, const std::vector<Box>& wanted,
                   double target = kTargetMs) {
  report(
      name, [&] { return create_read_items_for_chunk_list("model.w", stored, wanted).size(); }, target);
}

// `parts` equal parts in every dimension, in row-major order.
TensorStorageMetadata grid(std::size_t rank, std::int64_t parts, std::int64_t side) {
  TensorStorageMetadata stored;
  stored.size = Shape(rank, parts * side);
  Shape at(rank, 0);
  for (bool more = true; more;) {
    stored.chunks.push_back({at, Shape(rank, side)});
    more = false;
    for (std::size_t d = rank; d-- > 0 && !more;) {
      at[d] += side;
      more = at[d] < stored.size[d];
      if (!more) at[d] = 0;
    }
  }
  return stored;
}

// Boxes of one and a half chunks a side, spread over the tensor.
std::vector<Box> spread(const TensorStorageMetadata& stored, std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<Box> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    Box box = stored.chunks[0];
    for (std::size_t d = 0; d < box.rank(); ++d) {
      box.sizes[d] = box.sizes[d] * 3 / 2;
      box.offsets[d] =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(stored.size[d] - box.sizes[d]));
    }
    wanted.push_back(std::move(box));
  }
  return wanted;
}

// 10,000 tensors of 100 chunks; the rank wants one box of each, across two chunks.
void many_tensors() {
  Metadata metadata;
  Flattened entries;
  for (int t = 0; t < 10'000; ++t) {
    std::string name = fmt::format("model.layers.{}.block.param_{}.weight", t / 10, t % 10);
    TensorStorageMetadata stored = grid(1, 100, 8);
    ShardedTensor sharded{DType::kFloat32, stored.size, {}};
    sharded.shards.push_back({{{404}, {8}}, Tensor::empty(DType::kFloat32, {8})});
    metadata.state_dict_metadata.emplace_back(name, std::move(stored));
    entries.push_back({name, {name}, std::move(sharded)});
  }
  report("plan.read_10k_tensors",
         [&] { return create_default_local_load_plan(entries, metadata).items.size(); });
}

void one_tensor() {
  for (const auto& [rank, parts] : {std::pair(1, 1'000'000), std::pair(2, 1'000), std::pair(3, 100)}) {
    TensorStorageMetadata stored = grid(static_cast<std::size_t>(rank), parts, 4);
    const std::vector<Box> wanted = spread(stored, 10'000);
    report_tensor(fmt::format("plan.read_10k_boxes_{}d", rank), stored, wanted);
    if (rank != 2) continue;
    std::shuffle(stored.chunks.begin(), stored.chunks.end(), std::mt19937_64(2));
    report_tensor("plan.read_10k_boxes_shuffled", stored, wanted);
  }
}

// Chunks that all but one lie in one corner, in no order: no figure to reach, but far from 10^10 comparisons.
void hostile() {
  TensorStorageMetadata stored;
  for (std::int64_t i = 0; i < 1'000'000; ++i)
    stored.chunks.push_back({{i * 7'919 % 1'000'000, 0}, {1, 100}});
  stored.chunks.push_back({{std::int64_t{1} << 59, 0}, {1, 1}});
  std::vector<Box> wanted;
  for (std::int64_t i = 0; i < 10'000; ++i) wanted.push_back({{i * 50, 0}, {2, 100}});
  report_tensor("plan.read_10k_boxes_hostile", stored, wanted, 0);
}

// 1,000 boxes out of 100,000 chunks: torch takes seconds for it.
void beside_torch() {
  const TensorStorageMetadata stored = grid(1, 100'000, 4);
  std::vector<Box> wanted;
  for (std::int64_t i = 0; i < 1'000; ++i) wanted.push_back({{i * 400 + 2}, {6}});
  std::size_t items = 0;
  const double ms =
      best_ms([&] { return create_read_items_for_chunk_list("w", stored, wanted).size(); }, items);
  fmt::print(R"({{"ms": {:.3f}, "items": {}}})"
             "\n",
             ms, items);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "torch") {
    beside_torch();
    return 0;
  }
  if (argc != 1) {
    fmt::print(stderr, "usage: plan_load [torch]\n");
    return 2;
  }
  const char* wanted = std::getenv("CAIRN_BENCH_ONLY");
  const std::string only = wanted == nullptr ? "" : wanted;
  if (!only.starts_with("plan.read") && !std::string_view("plan.read").starts_with(only)) return 0;
  many_tensors();
  one_tensor();
  hostile();
  return 0;
}
