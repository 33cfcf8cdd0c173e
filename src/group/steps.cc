#include "group/steps.h"

#include <algorithm>
#include <utility>

#include "base/current_error.h"
#include "base/trial.h"
#include "base/wire_bytes.h"

namespace cairn {
namespace {

// How much longer than the coordinator waits for them the others wait for its word: it knows who is missing.
constexpr std::chrono::milliseconds kGrace(1500);
constexpr std::size_t kMostText = 4096;       // of a message, a path or a name in an error that travels
constexpr std::size_t kMostCause = 64 << 10;  // half of one says nothing: a longer one stays behind
constexpr char kResult = kGoodPart;
constexpr char kFailure = 'F';  // of the step

void put_text(std::string& out, std::string_view text) {
  text = text.substr(0, kMostText);
  put_varint(out, text.size());
  out += text;
}

std::string encode_failures(const std::map<int, Error>& failures) {
  std::string bytes(1, kFailure);
  put_varint(bytes, failures.size());
  for (const auto& [rank, error] : failures) {
    put<std::int32_t>(bytes, rank);
    const std::string one = encode_error(error);
    put_varint(bytes, one.size());
    bytes += one;
  }
  return bytes;
}

std::map<int, Error> decode_failures(std::string_view bytes) {
  WireReader in(as_bytes(bytes));
  std::map<int, Error> failures;
  for (std::uint64_t left = in.varint(); left > 0; --left) {
    const auto rank = in.get<std::int32_t>();
    failures.emplace(rank, decode_error(in.text(in.varint())));
  }
  in.finish();
  if (failures.empty()) in.fail("tells of a failure of nobody");
  return failures;
}

std::string tagged(char tag, std::string_view bytes) {
  std::string all(1, tag);
  all += bytes;
  return all;
}

// The failure of an exchange: it is that of the rank that was waited for.
std::map<int, Error> blame(const Error& error, int otherwise) {
  return {{error.rank().value_or(otherwise), error}};
}

}  // namespace

std::string encode_error(const Error& error) {
  std::string out;
  out.push_back(static_cast<char>(error.code()));
  out.push_back(static_cast<char>((error.offset() ? 1 : 0) | (error.rank() ? 2 : 0)));
  put<std::uint64_t>(out, error.offset().value_or(0));
  put<std::int32_t>(out, error.rank().value_or(0));
  put<std::int32_t>(out, error.os_error());
  for (const std::string& text : {error.message(), error.file(), error.tensor(), error.doing()})
    put_text(out, text);
  const std::string_view cause = error.cause();
  put_varint(out, cause.size() > kMostCause ? 0 : cause.size());
  if (cause.size() <= kMostCause) out += cause;
  return out;
}

Error decode_error(std::string_view bytes) {
  WireReader in(as_bytes(bytes));
  const auto code = in.get<std::uint8_t>();
  const auto flags = in.get<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(ErrorCode::kInternal) || flags > 3)
    in.fail("has an error of no known kind");
  const auto offset = in.get<std::uint64_t>();
  const auto rank = in.get<std::int32_t>();
  const auto os_error = in.get<std::int32_t>();
  Error error(static_cast<ErrorCode>(code), std::string(in.text(in.varint())));
  error.in_file(in.text(in.varint()));
  error.of_tensor(in.text(in.varint()));
  error.while_doing(in.text(in.varint()));
  error.with_cause(in.text(in.varint()));
  in.finish();
  if ((flags & 1) != 0) error.at(offset);
  if ((flags & 2) != 0) error.on_rank(rank);
  return error.with_errno(os_error);
}

Steps::Steps(Group& group, int coordinator, Time deadline)
    : group_(group),
      alive_(group.stay_alive()),
      coordinator_(coordinator),
      deadline_(deadline),
      number_(group.begin_operation()) {
  if (coordinator < 0 || coordinator >= group.size()) {
    throw Error(ErrorCode::kInvalidArgument, "the coordinator's rank is not in the group");
  }
}

Steps::Time Steps::deadline_after(std::chrono::nanoseconds time) {
  const Time now = std::chrono::steady_clock::now();
  return time > Time::max() - now ? Time::max() : now + time;
}

Step Steps::next(std::chrono::nanoseconds grace) {
  const bool unlimited = deadline_ > Time::max() - std::chrono::hours(1);
  return {++number_, unlimited ? deadline_ : deadline_ + grace};
}

Steps::Part Steps::run(const Map& map) {
  try {
    std::string made = map();
    CAIRN_POINT("step.before_gather");
    return {std::move(made), std::nullopt};
  } catch (const StoppedError&) {
    return {"", std::nullopt, true};
  } catch (...) {
    return {"", current_error()};
  }
}

// On the coordinator: every rank's part, as it was sent. On the others: nothing.
std::vector<std::string> Steps::collect(Part mine) {
  std::string bytes = mine.stopped ? std::string(1, kStoppedPart)
                      : mine.error ? tagged(kFailedPart, encode_error(*mine.error))
                                   : tagged(kResult, mine.bytes);
  bytes_ += is_coordinator() ? 0 : bytes.size();
  const Step now = next();
  std::vector<std::string> all = group_.gather(std::move(bytes), coordinator_, now);
  if (!is_coordinator()) CAIRN_POINT("step.part_sent");
  return all;
}

std::string Steps::hear(std::string_view step, const std::map<int, Error>& unsent,
                        const std::function<std::string()>& receive) {
  std::string answer;
  try {
    answer = receive();
  } catch (const Error& error) {
    throw UnheardError(step, unsent.empty() ? blame(error, coordinator_) : unsent);
  }
  if (!answer.empty() && answer.front() == kResult) return answer.substr(1);
  if (!answer.empty() && answer.front() == kFailure)
    throw CheckpointError(step, decode_failures(std::string_view(answer).substr(1)));
  throw UnheardError(
      step, blame(Error(ErrorCode::kCorrupt, "the coordinator's answer makes no sense"), coordinator_));
}

std::string Steps::settle(std::string_view step, std::vector<std::string> answers,
                          const std::map<int, Error>& failures) {
  const Step now = next(kGrace);
  if (!is_coordinator()) {
    // Also when its part could not be sent: a coordinator that is gone may have left word why.
    return hear(step, failures, [&] {
      std::string answer = group_.scatter({}, coordinator_, now);
      CAIRN_POINT("step.answer_heard");
      bytes_ += answer.size();
      return answer;
    });
  }
  const bool failed = !failures.empty();
  if (failed) answers.assign(static_cast<std::size_t>(size()), encode_failures(failures));
  std::string mine = answers[static_cast<std::size_t>(rank())];
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (static_cast<int>(i) != rank()) bytes_ += answers[i].size();
  try {
    group_.scatter(std::move(answers), coordinator_, now);
  } catch (const Error&) {
    // The step is done, or has failed, whether everybody hears of it or not. Who cannot be told is missing in
    // the next one.
  }
  if (failed) throw CheckpointError(step, failures);
  return mine.substr(1);
}

std::string Steps::reduce_scatter(
    std::string_view step, const Map& map,
    const std::function<std::vector<std::string>(std::vector<std::string>)>& reduce) {
  std::vector<std::string> answers;
  std::map<int, Error> failures;
  Part mine = run(map);
  try {
    std::vector<std::string> all = collect(std::move(mine));
    std::map<int, Error> stopped;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const char kind = all[i].empty() ? kFailedPart : all[i].front();
      all[i].erase(0, 1);
      if (kind == kStoppedPart) stopped.emplace(static_cast<int>(i), StoppedError());
      if (kind != kResult && kind != kStoppedPart)
        failures.emplace(static_cast<int>(i), decode_error(all[i]));
    }
    if (failures.empty())
      failures = std::move(stopped);  // nobody failed: the coordinator wants no more of it
    if (is_coordinator()) CAIRN_POINT("step.gathered");
    if (is_coordinator() && failures.empty()) {
      answers = reduce(std::move(all));
      if (answers.size() != static_cast<std::size_t>(size()))
        throw Error(ErrorCode::kInternal, "a step has not one answer for each rank");
    }
    if (is_coordinator()) CAIRN_POINT("step.before_scatter");
  } catch (...) {
    failures = blame(current_error(), coordinator_);
  }
  for (std::string& answer : answers) answer.insert(answer.begin(), kResult);
  return settle(step, std::move(answers), failures);
}

std::string Steps::all_reduce(std::string_view step, const Map& map,
                              const std::function<std::string(std::vector<std::string>)>& reduce) {
  return reduce_scatter(step, map, [&](std::vector<std::string> all) {
    // Made first: `reduce` may publish something, and what fails afterwards would fail too late.
    std::vector<std::string> answers(static_cast<std::size_t>(size()));
    const std::string answer = reduce(std::move(all));
    std::fill(answers.begin(), answers.end(), answer);
    return answers;
  });
}

std::vector<std::string> Steps::all_gather(std::string_view step, const Map& map) {
  return unpack(all_reduce(step, map, pack));
}

std::string Steps::broadcast(std::string_view step, const Map& map) {
  std::string bytes;
  if (is_coordinator()) {
    const Part mine = run(map);
    bytes = mine.error ? encode_failures({{rank(), *mine.error}}) : tagged(kResult, mine.bytes);
    bytes_ += bytes.size();
  }
  const Step now = next(kGrace);
  return hear(step, {}, [&] {
    try {
      bytes = group_.broadcast(bytes, coordinator_, now);
    } catch (const Error&) {
      // As in settle(): the next step finds out who is missing, and tells all others.
      if (!is_coordinator()) throw;
    }
    CAIRN_POINT("step.broadcast_heard");
    return bytes;
  });
}

}  // namespace cairn
