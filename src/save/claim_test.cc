#include "save/claim.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <thread>

#include "base/bytes.h"
#include "base/source.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "testing/forwarding.h"

namespace cairn {
namespace {

const SaveId kFirst = save_id_from("0000000000000000000000000000000a").value();
const SaveId kSecond = save_id_from("0000000000000000000000000000000b").value();
const SaveId kThird = save_id_from("0000000000000000000000000000000c").value();

// Calls something before each step that others can see.
class SteppedFileSystem final : public ForwardingFileSystem {
 public:
  SteppedFileSystem(FileSystem& inner, std::function<void()> step)
      : ForwardingFileSystem(inner), step_(std::move(step)) {}

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    struct Writer final : FileWriter {
      Writer(std::unique_ptr<FileWriter> real, const std::function<void()>& before)
          : inner(std::move(real)), step(before) {}
      void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
        inner->write_at(offset, bytes);
      }
      void commit() override {
        step();
        inner->commit();
      }
      std::unique_ptr<FileWriter> inner;
      const std::function<void()>& step;
    };
    step_();
    return std::make_unique<Writer>(inner_.create(name, options), step_);
  }
  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    step_();
    return inner_.open(name);
  }
  std::optional<FileEntry> stat(std::string_view name) const override {
    step_();
    return inner_.stat(name);
  }
  std::vector<FileEntry> entries(std::string_view folder) const override {
    step_();
    return inner_.entries(folder);
  }
  std::optional<std::string> version_of(std::string_view name) const override {
    step_();
    return inner_.version_of(name);
  }
  void rename(std::string_view from, std::string_view to) override {
    step_();
    inner_.rename(from, to);
  }
  void remove(std::string_view name) override {
    step_();
    inner_.remove(name);
  }

 private:
  std::function<void()> step_;
};

class Claim : public testing::Test {
 protected:
  Claim() { begin(); }

  // Only an old checkpoint is there.
  void begin() {
    files_ = memory_file_system();
    write(".metadata", "the old one");
    old_ = *files_->version_of(".metadata");
  }

  void write(const std::string& name, std::string_view text) {
    const auto file = files_->create(name, {.replace = true});
    file->write_at(0, as_bytes(text));
    file->commit();
  }
  std::string published() const { return read_all(*files_->open(".metadata")); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const FileEntry& entry : files_->list()) all.push_back(entry.name);
    return all;
  }

  // Whether it got through.
  static bool replace(FileSystem& files, const SaveId& save, const std::string& expected) {
    const std::string text = to_string(save);
    try {
      replace_by_claim(files, {.save = save, .rank = {}, .bytes = text, .expected = expected});
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
      return false;
    }
  }

  std::unique_ptr<FileSystem> files_ = memory_file_system();
  std::string old_;
};

TEST_F(Claim, OneAloneReplacesAndLeavesNothingElse) {
  EXPECT_TRUE(replace(*files_, kFirst, old_));
  EXPECT_EQ(published(), to_string(kFirst));
  EXPECT_EQ(names(), std::vector<std::string>{".metadata"});
}

TEST_F(Claim, WhoeverComesAfterwardsIsTooLate) {
  EXPECT_TRUE(replace(*files_, kFirst, old_));
  EXPECT_FALSE(replace(*files_, kSecond, old_));
  EXPECT_EQ(published(), to_string(kFirst));
  EXPECT_EQ(names(), std::vector<std::string>{".metadata"});
}

struct Death {};

// Runs a save that dies at this step. False when it has not so many.
bool replace_until(FileSystem& files, const SaveId& save, const std::string& expected, int last) {
  int steps = 0;
  bool dead = false;
  SteppedFileSystem mortal(files, [&] {
    if (steps++ < last) return;
    dead = true;  // and nothing it does afterwards has an effect
    throw Death();
  });
  const std::string text = to_string(save);
  try {
    replace_by_claim(mortal, {.save = save, .rank = {}, .bytes = text, .expected = expected});
  } catch (const Death&) {
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
  }
  return dead;
}

TEST_F(Claim, TheDeadBlockNobody) {
  for (int last = 0;; ++last) {
    begin();
    const bool died = replace_until(*files_, kFirst, old_, last);
    const std::string seen = published();
    const std::string now = *files_->version_of(".metadata");
    EXPECT_TRUE(replace(*files_, kSecond, now))
        << "after a death at step " << last << ", which left " << seen;
    EXPECT_EQ(published(), to_string(kSecond));
    if (!died) break;
    ASSERT_LT(last, 100);
  }
}

// A clean-up that is killed, or a loss of power, can leave a claim and take those before it.
TEST_F(Claim, AGapBlocksNobody) {
  for (int last = 0; files_->list().size() < 2 || names()[0].find("claim") == std::string::npos; ++last) {
    begin();
    ASSERT_TRUE(replace_until(*files_, kFirst, old_, last));
  }
  const std::string claim = names()[0];
  ASSERT_TRUE(claim.ends_with(".1")) << claim;
  for (const int number : {2, 3, 9}) {
    begin();
    write(claim.substr(0, claim.size() - 1) + std::to_string(number), to_string(kFirst));
    write(pending_metadata_name(kFirst), "the one that died");
    EXPECT_TRUE(replace(*files_, kSecond, old_)) << number;
    EXPECT_EQ(names(), std::vector<std::string>{".metadata"}) << number;
  }
}

// A save in a thread of its own that stops before one of its steps until it is told to go on.
class Stopping {
 public:
  Stopping(FileSystem& files, int stop, std::function<bool(FileSystem&)> save)
      : files_(files, [this, stop] {
          if (steps_++ != stop) return;
          stopped_ = true;
          halted_.release();
          go_on_.acquire();
        }) {
    thread_ = std::thread([this, save = std::move(save)] {
      won_ = save(files_);
      if (!stopped_) halted_.release();
    });
    halted_.acquire();  // it stands, or is through
  }
  bool stopped() const { return stopped_; }
  bool finish() {
    if (stopped_) go_on_.release();
    thread_.join();
    return won_;
  }

 private:
  std::atomic<int> steps_ = 0;
  std::atomic<bool> stopped_ = false, won_ = false;
  std::binary_semaphore halted_{0}, go_on_{0};
  SteppedFileSystem files_;
  std::thread thread_;
};

// Each of two stops once, anywhere, while the other goes on; the first wakes up before the second or after
// it.
TEST_F(Claim, OfTwoOneGetsThroughWheneverTheySleep) {
  int tried = 0;
  for (const bool first_wakes_first : {true, false}) {
    for (int i = 0;; ++i) {
      bool first_stops = false;
      for (int j = 0;; ++j, ++tried) {
        begin();
        const auto save = [&](const SaveId& id) {
          return [&](FileSystem& files) { return replace(files, id, old_); };
        };
        Stopping first(*files_, i, save(kFirst));
        Stopping second(*files_, j, save(kSecond));
        first_stops = first.stopped();
        const bool second_stops = second.stopped();
        bool first_won = false, second_won = false;
        if (first_wakes_first) first_won = first.finish();
        second_won = second.finish();
        if (!first_wakes_first) first_won = first.finish();
        ASSERT_NE(first_won, second_won) << i << " " << j << " " << first_wakes_first;
        ASSERT_EQ(published(), to_string(first_won ? kFirst : kSecond)) << i << " " << j;
        ASSERT_EQ(names(), std::vector<std::string>{".metadata"}) << i << " " << j;
        if (!second_stops) break;
      }
      if (!first_stops) break;
    }
  }
  EXPECT_GT(tried, 200);
}

// The first sleeps anywhere, the second dies anywhere, a third comes; then the first wakes up.
TEST_F(Claim, ASleeperFindsNothingToRename) {
  for (int i = 0;; ++i) {
    bool first_stops = false;
    for (int last = 0; last < 30; ++last) {
      begin();
      Stopping first(*files_, i, [&](FileSystem& files) { return replace(files, kFirst, old_); });
      first_stops = first.stopped();
      replace_until(*files_, kSecond, old_, last);
      const std::string before = published();
      const bool third_won = replace(*files_, kThird, *files_->version_of(".metadata"));
      EXPECT_TRUE(third_won) << i << " " << last << ": " << before;
      const bool first_won = first.finish();
      ASSERT_EQ(published(), to_string(kThird)) << i << " " << last << " first won: " << first_won;
    }
    if (!first_stops) break;
  }
}

}  // namespace
}  // namespace cairn
