// Every command on files that are not on any disk.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/checkpoint.h"
#include "cairn/storage.h"
#include "command.h"

namespace cairn::cli {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

Outcome run(std::vector<std::string> words) {
  words.insert(words.begin(), "cairn");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  std::unique_ptr<Command> command;
  const int code = guarded_main(static_cast<int>(arguments.size()), arguments.data(), command);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// What is printed by a command that must succeed.
std::string output_of(const std::vector<std::string>& words) {
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

// A checkpoint, and what a save that died would have left beside it.
void save_to(const std::string& url) {
  Tensor tensor = Tensor::zeros(DType::kFloat32, {16, 4});
  save({{"model", Dict{{"w", tensor}, {"b", Tensor::zeros(DType::kInt64, {3})}}}, {"step", 7}}, url);
  file_system_of(url)->create("__0_0.00000000000000000000000000000000.distcp")->commit();
}

TEST(Commands, EachOfThemRunsInMemory) {
  const std::string root = "memory://commands", step = root + "/run/step-7";
  save_to(step);
  std::map<std::string_view, bool> tried;
  const auto try_out = [&](const std::vector<std::string>& words) {
    for (const CommandRow& row : command_table())
      if (row.name == words.front()) tried[row.name] = true;
    return output_of(words);
  };
  EXPECT_NE(try_out({"ls", step}).find("model.w"), std::string::npos);
  EXPECT_NE(try_out({"info", step}).find("dcp"), std::string::npos);
  EXPECT_NE(try_out({"show", step, "model.b"}).find("int64"), std::string::npos);
  EXPECT_NE(try_out({"gc", step}).find("__0_0.0000"), std::string::npos);
  try_out({"verify", step});
  try_out({"convert", step, root + "/flat/state.pt"});
  try_out({"convert", step, root + "/flat/model.safetensors", "--skip-objects"});
  try_out({"convert", step, root + "/hub", "--to", "safetensors", "--skip-objects"});
  try_out({"convert", root + "/flat/state.pt", root + "/again", "--ranks", "2"});
  for (const char* made : {"/flat/state.pt", "/flat/model.safetensors", "/hub", "/again"}) {
    output_of({"verify", root + made});
    EXPECT_NE(output_of({"ls", root + made}).find("model.w"), std::string::npos) << made;
  }
  try_out({"completion", "bash"});
  const Outcome bench = run({"bench", root + "/bench"});
  tried["bench"] = true;
  EXPECT_EQ(bench.code, 1);
  EXPECT_NE(bench.err.find("only what is on a disk"), std::string::npos) << bench.err;
  for (const CommandRow& row : command_table()) EXPECT_TRUE(tried[row.name]) << row.name;
}

TEST(Commands, SayWhichSchemesThereAreForOneTheyDoNotKnow) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"ls", "gopher://x"},
                                                {"info", "gopher://x"},
                                                {"show", "gopher://x", "w"},
                                                {"verify", "gopher://x"},
                                                {"gc", "gopher://x"},
                                                {"convert", "gopher://x", "y.pt"},
                                                {"bench", "gopher://x"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 1) << words.front();
    EXPECT_TRUE(outcome.err.find("memory://") != std::string::npos || words.front() == "bench")
        << outcome.err;
  }
}

TEST(Commands, WhatIsNotThereIsSaidOfUrlsToo) {
  const Outcome outcome = run({"ls", "memory://commands/none"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("memory://commands/none"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace cairn::cli
