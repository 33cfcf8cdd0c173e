// Messages of a save that come in the next one.
#include <gtest/gtest.h>

#include "cairn/cairn.h"
#include "cairn/hugging_face.h"
#include "testing/states.h"

namespace cairn {
namespace {

// Sends what it sent in the save before, in one of its exchanges.
class LateGroup final : public Group {
 public:
  LateGroup(Group& group, std::size_t late) : group_(group), late_(late) {}
  void begin_save() { ++saves_, exchanges_ = 0; }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> gather(std::string mine, int root, const Step& step) override {
    if (saves_ == 1) sent_.push_back(mine);
    if (saves_ == 2 && exchanges_ == late_ && rank() != root) mine = sent_.at(late_);
    ++exchanges_;
    return group_.gather(std::move(mine), root, step);
  }
  std::string scatter(std::vector<std::string> all, int root, const Step& step) override {
    return group_.scatter(std::move(all), root, step);
  }
  std::string broadcast(std::string bytes, int root, const Step& step) override {
    return group_.broadcast(std::move(bytes), root, step);
  }
  std::vector<std::string> all_gather(std::string mine, const Step& step) override {
    return group_.all_gather(std::move(mine), step);
  }
  void barrier(const Step& step) override { group_.barrier(step); }
  std::size_t exchanges() const { return exchanges_; }

 private:
  Group& group_;
  std::size_t late_;
  int saves_ = 0;
  std::size_t exchanges_ = 0;
  std::vector<std::string> sent_;
};

// Hugging Face's files have no manifest that would say which save they are of.
TEST(LateMessages, OfAnOlderSaveAreRefused) {
  for (const std::size_t late : {0U, 1U}) {
    const std::shared_ptr<FileSystem> files = memory_file_system();
    std::vector<std::string> texts(2);
    run_ranks(2, [&](Group& threads) {
      LateGroup group(threads, late);
      const auto writer = hf_writer(files, {.sharded = true, .objects = HfObjects::kSkip});
      const SaveOptions options{.group = &group, .writer = writer.get()};
      group.begin_save();
      save(trainer_state(group.rank(), 2, 1), "memory", options);
      ASSERT_EQ(group.exchanges(), 2U) << "plans, and what was written";
      group.begin_save();
      try {
        save(trainer_state(group.rank(), 2, 2), "memory", options);
      } catch (const CheckpointError& e) {
        texts.at(static_cast<std::size_t>(group.rank())) = e.what();
      }
    });
    EXPECT_NE(texts[0].find("another save"), std::string::npos) << texts[0];
    EXPECT_EQ(texts[1], texts[0]);
  }
}

}  // namespace
}  // namespace cairn
