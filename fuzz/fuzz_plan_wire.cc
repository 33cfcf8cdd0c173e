// Messages between ranks: what is accepted can be planned with, sent again, and means the same.
#include "cairn/planner.h"
#include "fuzz.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_load.h"

namespace cairn::fuzz {
namespace {

void run_local(ByteSpan input) {
  PlanGather gather(1);
  gather.add(input);
  const std::vector<SavePlan> plans = gather.take();
  const std::string again = encode_local_plan(plans[0], 0, 1);
  must("an accepted plan is accepted again", [&] {
    PlanGather second(1);
    second.add(as_bytes(again));
    require(encode_local_plan(second.take()[0], 0, 1) == again, "a plan has one meaning");
    return 0;
  });
  SavePlannerOptions options;
  options.global.allow_partial = true;
  options.global.split.least_bytes = 1 << 10;
  options.global.split.most_pieces = 1 << 10;
  // Plans that lie are refused here, by an Error.
  const GlobalSavePlan global = DefaultSavePlanner(options).create_global_plan(plans);
  for (const SavePlan& plan : global.plans) {
    must("a global plan can be sent", [&] {
      const std::string message = encode_global_plan(plan, 0, 1);
      const SavePlan arrived = decode_global_plan(as_bytes(message), 0, 1);
      require(encode_global_plan(arrived, 0, 1) == message, "a global plan arrives as it left");
      return 0;
    });
  }
}

void run_global(ByteSpan input) {
  const SavePlan plan = decode_global_plan(input, 0, 1);
  for (std::size_t i = 0; i < plan.items.size(); ++i)
    require(plan.items[i] == plan.items[i], "items can be read");
}

void run_results(ByteSpan input) {
  std::vector<WriteResult> results;
  decode_write_results(input, 0, 1, [&](const WriteResult& result) { results.push_back(result); });
  const std::string again = encode_write_results(results, 0, 1);
  std::vector<WriteResult> second;
  must("accepted results are accepted again", [&] {
    decode_write_results(as_bytes(again), 0, 1, [&](const WriteResult& result) { second.push_back(result); });
    return 0;
  });
  require(encode_write_results(second, 0, 1) == again, "results have one meaning");
}

void run_load(ByteSpan input) {
  const LoadPlan plan = decode_load_plan(input, 0, 1);
  const std::string again = encode_load_plan(plan, 0, 1);
  must("an accepted load plan is accepted again", [&] {
    require(encode_load_plan(decode_load_plan(as_bytes(again), 0, 1), 0, 1) == again,
            "a load plan has one meaning");
    return 0;
  });
}

}  // namespace

void run(ByteSpan input, const Limits&) {
  // The kind is a byte of the header; anything else goes the first way and is refused there.
  const auto kind = input.size() < 7 ? PlanMessage::kLocalPlan : static_cast<PlanMessage>(input[6]);
  if (kind == PlanMessage::kGlobalPlan) return run_global(input);
  if (kind == PlanMessage::kWriteResults) return run_results(input);
  if (kind == PlanMessage::kLoadPlan) return run_load(input);
  run_local(input);
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
