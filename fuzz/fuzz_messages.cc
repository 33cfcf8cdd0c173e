// What ranks say to each other besides plans: errors, failures of a step, packed lists. An input is a byte
// that picks the exchange, then what a hostile peer sends in it, all messages of a length byte pair and their
// bytes.
#include <deque>
#include <memory>
#include <utility>

#include "fuzz.h"
#include "group/mail.h"
#include "group/steps.h"

namespace cairn::fuzz {
namespace {

// The letter box of a rank whose peers send whatever the input holds.
class HostileMail final : public Mail {
 public:
  explicit HostileMail(std::string_view script) {
    while (script.size() >= 2) {
      const std::size_t length = static_cast<unsigned char>(script[0]) | static_cast<unsigned char>(script[1])
                                                                             << 8U;
      script.remove_prefix(2);
      letters_.emplace_back(script.substr(0, length));
      script.remove_prefix(std::min(length, script.size()));
    }
  }
  void send(int, std::string, const Step&) override {}
  std::string receive(int from, const Step&) override {
    if (letters_.empty()) fail_gone(from);
    std::string letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }

 private:
  std::deque<std::string> letters_;
};

bool same(const Error& a, const Error& b) {
  return a.code() == b.code() && a.message() == b.message() && a.file() == b.file() &&
         a.tensor() == b.tensor() && a.doing() == b.doing() && a.offset() == b.offset() &&
         a.rank() == b.rank() && a.os_error() == b.os_error() && a.cause() == b.cause();
}

// An error that arrives can be sent on, and arrives as the same one (its texts cut to what a message holds).
void run_error(std::string_view bytes) {
  const Error once = decode_error(bytes);
  must("an error that arrived can be sent on", [&] {
    const Error again = decode_error(encode_error(once));
    const Error third = decode_error(encode_error(again));
    require(same(again, third), "an error arrives as it was sent");
    require(again.code() == once.code() && again.rank() == once.rank() && again.offset() == once.offset() &&
                again.os_error() == once.os_error(),
            "numbers of an error arrive as they were sent");
    return 0;
  });
}

std::string first(const std::vector<std::string>& all) { return all.front(); }

}  // namespace

void run(ByteSpan input, const Limits&) {
  const std::string_view text = as_text(input);
  if (text.empty()) throw Error(ErrorCode::kCorrupt, "nothing was sent");
  const std::string_view script = text.substr(1);
  const unsigned exchange = static_cast<unsigned char>(text[0]) % 8;
  if (exchange == 0) return run_error(script);
  const bool coordinator = exchange < 3;
  const auto group = group_over(std::make_unique<HostileMail>(script), coordinator ? 0 : 1, 3);
  const auto mine = [] { return std::string("mine"); };
  Steps steps(*group, 0, Steps::Time::max());
  try {
    switch (exchange) {
      case 1: steps.all_reduce("write", mine, first); return;
      case 2:
      case 3: require(steps.all_gather("plan", mine).size() <= text.size(), "a part has its bytes"); return;
      case 4: steps.broadcast("read", mine); return;
      case 5: steps.reduce_scatter("plan", mine, [](auto all) { return all; }); return;
      default: require(group->all_gather("mine", {}).size() == 3, "a part of every rank"); return;
    }
  } catch (const CheckpointError& e) {
    // The step failed, as it may; whoever is told of it learns of at least one failure.
    require(!e.failures().empty(), "a failed step has a failure");
    throw Error(ErrorCode::kCorrupt, "a peer failed");  // with whatever code it likes to say
  }
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
