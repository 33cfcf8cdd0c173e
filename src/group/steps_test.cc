#include "group/steps.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "group/mail.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

// What every rank got, or the text of the error it met.
std::vector<std::string> on_ranks(int size, const std::function<std::string(Steps&)>& body,
                                  std::chrono::nanoseconds time = 30s) {
  std::vector<std::string> got(static_cast<std::size_t>(size));
  const auto deadline = std::chrono::steady_clock::now() + time;
  run_ranks(size, [&](Group& group) {
    Steps steps(group, 0, deadline);
    std::string& mine = got[static_cast<std::size_t>(group.rank())];
    try {
      mine = body(steps);
    } catch (const UnheardError& e) {
      mine = "unheard: " + std::string(e.what());
    } catch (const CheckpointError& e) {
      mine = "failed: " + std::string(e.what());
    }
  });
  return got;
}

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part + ",";
  return all;
}

TEST(Steps, EachRankGetsItsPartOfTheReduction) {
  const auto got = on_ranks(3, [](Steps& steps) {
    return steps.reduce_scatter(
        "plan", [&] { return std::to_string(steps.rank()); },
        [](std::vector<std::string> all) {
          for (std::string& part : all) part += "!" + join(all);
          return all;
        });
  });
  EXPECT_EQ(got[0], "0!0,1,2,");
  EXPECT_TRUE(got[2].starts_with("2!"));
}

TEST(Steps, AllReduceAllGatherAndBroadcastReachEverybody) {
  const auto got = on_ranks(4, [](Steps& steps) {
    const auto mine = [&] { return std::to_string(steps.rank()); };
    return steps.all_reduce("a", mine, join) + join(steps.all_gather("b", mine)) + steps.broadcast("c", mine);
  });
  for (const std::string& text : got) EXPECT_EQ(text, "0,1,2,3,0,1,2,3,0");
}

TEST(Steps, AFailureOnOneRankIsTheSameErrorOnAll) {
  const auto got = on_ranks(3, [](Steps& steps) {
    return steps.all_reduce(
        "write",
        [&]() -> std::string {
          if (steps.rank() == 1) {
            throw Error(ErrorCode::kIo, "cannot write")
                .in_file("__1_0.distcp")
                .of_tensor("w")
                .at(8)
                .with_errno(ENOSPC);
          }
          return "";
        },
        [](const std::vector<std::string>&) -> std::string { throw Error(ErrorCode::kInternal, "reduced"); });
  });
  EXPECT_EQ(got[0],
            "failed: step 'write' failed on 1 rank(s); rank 1: __1_0.distcp: tensor 'w': at byte 8: cannot "
            "write: No space left on device (io) (io)");
  EXPECT_EQ(got[1], got[0]);
  EXPECT_EQ(got[2], got[0]);
}

TEST(Steps, AFailureOfTheReductionIsTheCoordinators) {
  const auto got = on_ranks(2, [](Steps& steps) {
    return steps.all_reduce(
        "write", [] { return std::string(); },
        [](const std::vector<std::string>&) -> std::string { throw std::runtime_error("odd"); });
  });
  EXPECT_TRUE(got[1].starts_with("failed: step 'write' failed on 1 rank(s); rank 0: odd (internal)"))
      << got[1];
  EXPECT_EQ(got[1], got[0]);
}

TEST(Steps, AFailureOfTheBroadcasterReachesAll) {
  const auto got = on_ranks(3, [](Steps& steps) {
    return steps.broadcast("begin",
                           [&]() -> std::string { throw Error(ErrorCode::kConflict, "somebody saves"); });
  });
  EXPECT_TRUE(got[2].starts_with("failed: ")) << got[2];
  EXPECT_EQ(got[1], got[0]);
  EXPECT_EQ(got[2], got[0]);
}

TEST(Steps, AMissingRankIsNamedToTheOthers) {
  const auto began = std::chrono::steady_clock::now();
  const auto got = on_ranks(
      3,
      [](Steps& steps) -> std::string {
        if (steps.rank() == 2) {
          std::this_thread::sleep_for(1500ms);
          return "slept";
        }
        return steps.all_reduce(
            "write", [] { return std::string(); }, join);
      },
      300ms);
  EXPECT_TRUE(got[0].find("rank 2 did not answer") != std::string::npos) << got[0];
  EXPECT_EQ(got[1], got[0]);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

TEST(Steps, ARankThatHearsNothingSaysSo) {
  const auto got = on_ranks(
      2,
      [](Steps& steps) -> std::string {
        if (steps.is_coordinator()) {
          std::this_thread::sleep_for(2500ms);
          return "slept";
        }
        return steps.all_reduce(
            "write", [] { return std::string(); }, join);
      },
      200ms);
  EXPECT_TRUE(got[1].starts_with("unheard: step 'write'")) << got[1];
}

// As sockets are: who sends to a rank that is gone hears of it.
class MortalMail final : public Mail {
 public:
  MortalMail(std::vector<std::map<std::uint64_t, std::string>>& boxes, int rank, std::set<int>& gone,
             std::mutex& mutex)
      : boxes_(boxes), rank_(rank), gone_(gone), mutex_(mutex) {}
  ~MortalMail() override {
    const std::lock_guard lock(mutex_);
    gone_.insert(rank_);
  }

  void send(int to, std::string bytes, const Step& step) override {
    const std::lock_guard lock(mutex_);
    if (gone_.contains(to)) fail_gone(to);
    boxes_[static_cast<std::size_t>(to)][key(rank_, step)] = std::move(bytes);
  }
  std::string receive(int from, const Step& step) override {
    for (; std::chrono::steady_clock::now() < step.deadline; std::this_thread::sleep_for(1ms)) {
      const std::lock_guard lock(mutex_);
      auto& mine = boxes_[static_cast<std::size_t>(rank_)];
      if (const auto found = mine.find(key(from, step)); found != mine.end()) return found->second;
      if (gone_.contains(from)) fail_gone(from);
    }
    fail_late(from);
  }

 private:
  static std::uint64_t key(int from, const Step& step) {
    return step.number * 64 + static_cast<std::uint64_t>(from);
  }

  std::vector<std::map<std::uint64_t, std::string>>& boxes_;
  int rank_;
  std::set<int>& gone_;
  std::mutex& mutex_;
};

// Rank 1 of four leaves before it takes part. What each of the others got.
std::vector<std::string> without_rank_1(const std::function<std::string(Steps&)>& body) {
  std::vector<std::map<std::uint64_t, std::string>> boxes(4);
  std::set<int> gone{1};
  std::mutex mutex;
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == 1) continue;
    threads.emplace_back([&, rank] {
      const auto group = group_over(std::make_unique<MortalMail>(boxes, rank, gone, mutex), rank, 4);
      Steps steps(*group, 0, std::chrono::steady_clock::now() + 30s);
      try {
        got[static_cast<std::size_t>(rank)] = body(steps);
      } catch (const CheckpointError& e) {
        got[static_cast<std::size_t>(rank)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return got;
}

TEST(Steps, ARankThatCannotBeToldKeepsNobodyElseFromHearing) {
  const auto got = without_rank_1([](Steps& steps) {
    return steps.all_reduce(
        "write", [] { return std::string(); }, join);
  });
  EXPECT_NE(got[0].find("rank 1 has left"), std::string::npos) << got[0];
  EXPECT_EQ(got[2], got[0]);
  EXPECT_EQ(got[3], got[0]);
}

TEST(Steps, ABroadcastReachesTheOthersOfARankThatIsGone) {
  const auto got = without_rank_1([](Steps& steps) { return steps.broadcast("begin", [] { return "id"; }); });
  for (const int rank : {0, 2, 3}) EXPECT_EQ(got[static_cast<std::size_t>(rank)], "id") << rank;
}

TEST(Steps, AWordThatTheCoordinatorLeftIsHeardByWhoComesLate) {
  const auto got = without_rank_1([](Steps& steps) {
    return steps.all_reduce(
        "write",
        [&] {
          if (steps.rank() == 3) std::this_thread::sleep_for(200ms);  // the coordinator has gone by then
          return std::string();
        },
        join);
  });
  EXPECT_NE(got[0].find("rank 1 has left"), std::string::npos) << got[0];
  EXPECT_EQ(got[3], got[0]);
}

TEST(Steps, AnAnswerForEachRankOrAnErrorForAll) {
  const auto got = on_ranks(3, [](Steps& steps) {
    return steps.reduce_scatter(
        "plan", [] { return std::string(); },
        [](const std::vector<std::string>&) { return std::vector<std::string>{"one"}; });
  });
  EXPECT_TRUE(got[0].starts_with("failed: step 'plan' failed on 1 rank(s); rank 0")) << got[0];
  EXPECT_EQ(got[1], got[0]);
  EXPECT_EQ(got[2], got[0]);
}

TEST(Steps, GoOnAfterAFailure) {
  const auto got = on_ranks(2, [](Steps& steps) {
    try {
      steps.all_gather("one", [&]() -> std::string { throw Error(ErrorCode::kIo, "no"); });
    } catch (const CheckpointError&) {
    }
    return join(steps.all_gather("two", [&] { return std::to_string(steps.rank()); }));
  });
  EXPECT_EQ(got[0], "0,1,");
  EXPECT_EQ(got[1], "0,1,");
}

TEST(ErrorWire, CarriesEverythingAnErrorSays) {
  const Error e = Error(ErrorCode::kTimeout, "late")
                      .in_file("f")
                      .of_tensor("t")
                      .at(7)
                      .on_rank(3)
                      .while_doing("load")
                      .with_errno(EIO);
  EXPECT_STREQ(decode_error(encode_error(e)).what(), e.what());
  EXPECT_EQ(decode_error(encode_error(e)).code(), ErrorCode::kTimeout);
}

TEST(ErrorWire, CarriesTheCallersOwnExceptionWholeOrNotAtAll) {
  const std::string cause("\x80\x04\0any bytes", 12);
  EXPECT_EQ(decode_error(encode_error(Error(ErrorCode::kIo, "x").with_cause(cause))).cause(), cause);
  const std::string large(std::size_t{1} << 20, 'c');
  EXPECT_EQ(decode_error(encode_error(Error(ErrorCode::kIo, "x").with_cause(large))).cause(), "");
}

// A group of one that tells when it was said to be at work.
class Watched final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(std::string mine, int, const Step&) override {
    seen += "gather ";
    return {std::move(mine)};
  }
  std::string scatter(std::vector<std::string> all, int, const Step&) override {
    seen += "scatter ";
    return all[0];
  }
  std::string broadcast(std::string bytes, int, const Step&) override { return bytes; }
  std::vector<std::string> all_gather(std::string mine, const Step&) override { return {std::move(mine)}; }
  void barrier(const Step&) override {}
  std::shared_ptr<void> stay_alive() override {
    seen += "< ";
    return {&seen, [](std::string* text) { *text += ">"; }};
  }
  std::string seen;
};

TEST(Steps, ARankIsSaidToBeAtWorkFromTheFirstStepToTheLast) {
  Watched group;
  {
    Steps steps(group, 0, std::chrono::steady_clock::time_point::max());
    steps.all_reduce(
        "a",
        [&] {
          group.seen += "map ";
          return std::string();
        },
        [&](const std::vector<std::string>&) {
          group.seen += "reduce ";
          return std::string();
        });
  }
  EXPECT_EQ(group.seen, "< map gather reduce scatter >");
}

TEST(ErrorWire, RefusesWhatIsNoError) {
  const std::string good = encode_error(Error(ErrorCode::kIo, "x").in_file("y"));
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_EQ(error_of([&] { decode_error(good.substr(0, n)); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of([&] { decode_error(good + "z"); }).code(), ErrorCode::kCorrupt);
  std::string odd = good;
  odd[0] = 99;
  EXPECT_EQ(error_of([&] { decode_error(odd); }).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace cairn
