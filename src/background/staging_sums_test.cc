#include <gtest/gtest.h>

#include <random>

#include "testing/async.h"
#include "testing/errors.h"

namespace cairn {
namespace {

std::byte* bytes_of(const Snapshot& snapshot, const char* name) {
  return snapshot.state.find(name)->get<Tensor>().view().data;
}

TEST(StagingSums, AThousandFlipsInASnapshotAreFound) {
  const Tensor whole = numbered({300, 40}, 1);
  TensorView column = whole.view();
  column.shape = {300, 7};
  StateDict state;
  state.set("large", Value(numbered({3 << 18}, 2)));
  state.set("rows", Value(whole));
  state.set("column", Value(Tensor(column, whole.owner())));  // shares its memory
  state.set("step", Value(numbered({}, 3)));
  const auto stager = default_stager({.checksums = true});
  const Snapshot snapshot = stager->stage(state, {});
  snapshot.check();

  std::mt19937_64 random(7);
  const std::vector<std::pair<const char*, std::size_t>> places = {
      {"large", 3U << 20}, {"rows", 48'000}, {"step", 4}};
  for (int i = 0; i < 1000; ++i) {
    const auto& [name, bytes] = places[random() % places.size()];
    std::byte& flipped = bytes_of(snapshot, name)[random() % bytes];
    const std::byte bit = std::byte{1} << (random() % 8);
    flipped ^= bit;
    const Error e = error_of([&] { snapshot.check(); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
    EXPECT_TRUE(e.tensor() == name || (name == std::string("rows") && e.tensor() == "column")) << e.what();
    flipped ^= bit;
  }
  snapshot.check();
}

TEST(StagingSums, AreTakenOnlyWhenAskedFor) {
  StateDict state;
  state.set("t", Value(numbered({10}, 1)));
  EXPECT_FALSE(default_stager()->stage(state, {}).check);
}

// Memory that loses a bit once the snapshot is whole.
class FlippingStager : public Stager {
 public:
  Snapshot stage(const StateDict& state, const StageRequest& request) override {
    Snapshot snapshot = inner_->stage(state, request);
    snapshot.whole.get();
    bytes_of(snapshot, "t1")[1000] ^= std::byte{4};
    return snapshot;
  }
  void synchronize() override { inner_->synchronize(); }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<Stager> inner_ = default_stager({.checksums = true});
};

TEST(StagingSums, ASaveWhoseSnapshotHasChangedPublishesNothing) {
  const SlowPlace place;
  save(large_state(2, 1), "memory", place.save());
  FlippingStager stager;
  AsyncSaver saver({.save = place.save(), .stager = &stager});
  const SaveHandle handle = saver.async_save(large_state(2, 2), "memory");
  const Error e = error_of([&] { handle.wait(); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
  EXPECT_TRUE(mentions(e, "'t1'")) << e.what();
  EXPECT_EQ(*place.load().find("version"), Value(1));
}

}  // namespace
}  // namespace cairn
