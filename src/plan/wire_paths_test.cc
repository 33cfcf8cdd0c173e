// Paths on the wire, and what may be said beside them.

#include <gtest/gtest.h>

#include "plan/wire.h"
#include "plan/wire_header.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace wire_paths_test {

using namespace std::literals;

using Path = std::vector<std::variant<std::string, std::int64_t>>;

SavePlan plan_with(const std::string& name, const Path& steps) {
  PathMap paths;
  paths.begin_entry(name);
  for (const auto& step : steps) std::visit([&](const auto& s) { paths.add_step(s); }, step);
  SavePlan plan;
  plan.planner_data = std::move(paths);
  return plan;
}

SavePlan decoded(const std::string& message) { return decode_global_plan(as_bytes(message), 0, 1); }

TEST(WirePaths, WhateverTheStepsTheyArriveAsTheyLeft) {
  const std::string longer(200, 'l');
  struct Case {
    std::string name;
    Path steps;
  };
  for (const auto& [name, steps] : std::vector<Case>{{"a.b", {"a", "b"}},
                                                     {"a.b", {"a.b"}},
                                                     {"a.b", {"x", "y"}},  // as many steps, none the same
                                                     {"a.b", {"a", "y"}},
                                                     {"a.b", {"a"}},
                                                     {"a.b", {"a", "b", "c"}},
                                                     {".b", {"x", "b"}},
                                                     {".b", {"", "b"}},
                                                     {"", {"x"}},
                                                     {"", {""}},
                                                     {"", {}},
                                                     {"a", {}},
                                                     {"7", {std::int64_t{7}}},
                                                     {"7", {"7"}},
                                                     {"a.-7", {"a", std::int64_t{-7}}},
                                                     {"a.07", {"a", "07"}},
                                                     {"a.07", {"a", std::int64_t{7}}},
                                                     {"x", {INT64_MIN, INT64_MAX}},
                                                     {longer + ".x", {longer, "x"}},
                                                     {longer + ".7", {longer, std::int64_t{7}}},
                                                     {"x", {longer, longer + longer}},
                                                     {longer, Path(300, "s")}}) {
    const SavePlan plan = plan_with(name, steps);
    EXPECT_EQ(decoded(encode_global_plan(plan, 0, 1)), plan) << name << " of " << steps.size();
  }
}

// The message of one path of `name`, spelled the way `bytes` say.
std::string with_path(const std::string& name, const std::string& bytes) {
  std::string message = encode_global_plan(plan_with(name, {"a step that is not the name"}), 0, 1);
  auto header = load<PlanHeader>(message.data());
  message.replace(sizeof(PlanHeader) + 4 + name.size(), header.path_bytes, bytes);
  header.path_bytes = static_cast<std::uint32_t>(bytes.size());
  store(message.data(), header);
  return message;
}

// Number of the name, steps x 2 + spelled out, and per step length x 2 + is a number.
TEST(WirePaths, APathThatIsNotItsNameIsCorrupt) {
  EXPECT_EQ(decoded(with_path("a.0", "\0\0"s)), plan_with("a.0", {"a", "0"}));
  EXPECT_EQ(decoded(with_path("a.0", "\0\4\2\3"s)), plan_with("a.0", {"a", std::int64_t{0}}));
  for (const std::string& bytes : {"\1\0"s,            // another name
                                   "\0\4\2\5"s,        // longer
                                   "\0\2\2"s,          // shorter
                                   "\0\4\0\6"s,        // no dot behind the first step
                                   "\0\4\0\4"s,        // nor here, where the lengths add up
                                   "\0\4\3\3"s,        // "a" is no number
                                   "\0\0\0"s,          // and a byte more
                                   "\0\0\0\0"s,        // and another path, which nobody announced
                                   "\0"s, "\0\4\2"s})  // cut
    EXPECT_EQ(error_of([&] { decoded(with_path("a.0", bytes)); }).code(), ErrorCode::kCorrupt)
        << testing::PrintToString(bytes);
}

TEST(WirePaths, ANumberHasOneSpelling) {
  const auto with_number = [](const std::string& text) {
    return with_path("x", "\0\3"s + static_cast<char>(2 * text.size() + 1) + text);
  };
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{70}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(decoded(with_number(std::to_string(number))), plan_with("x", {number}));
  for (const char* text : {"", "07", "-0", "+7", " 7", "7 ", "7x", "x", "0x7", "7.", "9223372036854775808",
                           "-9223372036854775809", "99999999999999999999999"})
    EXPECT_EQ(error_of([&] { decoded(with_number(text)); }).code(), ErrorCode::kCorrupt) << text;
}

TEST(WirePaths, WhatTheFlagsSayMustBeThere) {
  const auto refusal = [](std::string message, auto change) {
    auto header = load<PlanHeader>(message.data());
    change(header);
    store(message.data(), header);
    return error_of([&] { decoded(message); }).code();
  };
  const std::string paths = encode_global_plan(plan_with("a", {"a"}), 0, 1);
  const std::string none = encode_global_plan(SavePlan{}, 0, 1);
  const std::string item = encode_global_plan(plan_of({WriteItem::bytes("o")}), 0, 1);
  SavePlan with_value = plan_of({});
  with_value.planner_data = Value(List{Value(7)});
  const std::string value = encode_global_plan(with_value, 0, 1);
  constexpr std::uint8_t kUsable = PlanHeader::kUsable;
  EXPECT_EQ(refusal(none, [](PlanHeader& h) { h.path_entries = 1; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(paths, [](PlanHeader& h) { h.flags = kUsable, h.path_entries = 0; }),
            ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(paths, [](PlanHeader& h) { h.flags = kUsable; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(paths, [](PlanHeader& h) { h.path_entries = 0; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(value,
                    [](PlanHeader& h) { h.flags = kUsable | PlanHeader::kHasPaths | PlanHeader::kHasValue; }),
            ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(value, [](PlanHeader& h) { h.flags = kUsable; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(none, [](PlanHeader& h) { h.flags = kUsable | 8; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(item, [](PlanHeader& h) { h.flags = 0; }), ErrorCode::kCorrupt);
}

}  // namespace wire_paths_test
}  // namespace cairn
