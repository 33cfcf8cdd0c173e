#include "runs/step_names.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(StepNames, AreThoseOfWhoWritesCheckpoints) {
  const std::pair<std::string_view, StepName> known[] = {
      {"step-1200", {1200, "torchtitan"}},
      {"iter_0001200", {1200, "megatron"}},
      {"checkpoint_7", {7, "accelerate"}},
      {"checkpoint-500", {500, "trainer"}},
      {"global_step10", {10, "deepspeed"}},
      {"0", {0, "plain"}},
      {"9223372036854775807", {INT64_MAX, "plain"}},
      {"epoch=3-step=1200.ckpt", {1200, "lightning", true}},
      {"epoch=0-step=5-v2.ckpt", {5, "lightning", true}},
  };
  for (const auto& [name, step] : known) EXPECT_EQ(parse_step_name(name), step) << name;
  for (const std::string_view name : {"",
                                      "step-",
                                      "step--1",
                                      "step-1a",
                                      "step-+1",
                                      "step-1.cairn-partial",
                                      " 1",
                                      "1 ",
                                      "9223372036854775808",
                                      "latest",
                                      "iter_",
                                      "checkpoint",
                                      "checkpoints-1",
                                      "epoch=-step=1.ckpt",
                                      "epoch=1-step=.ckpt",
                                      "epoch=1-step=2-v.ckpt",
                                      "epoch=1-step=2",
                                      "last.ckpt",
                                      ".cairn-run",
                                      "latest_checkpointed_iteration.txt"})
    EXPECT_EQ(parse_step_name(name), std::nullopt) << name;
  EXPECT_EQ(parse_step_name(step_name(12))->step, 12);
}

}  // namespace
}  // namespace cairn
