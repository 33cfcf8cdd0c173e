#include "runs/records.h"

#include <fmt/format.h>

#include <charconv>

#include "base/source.h"
#include "cairn/error.h"
#include "storage/write_file.h"

namespace cairn {
namespace {

constexpr std::size_t kMostText = 1 << 20;
constexpr int kMostTries = 50;  // against others who change the same record
constexpr std::string_view kOwnLine = "own", kAbandonedLine = "abandoned", kMetric = "metric ", kTag = "tag ";

std::string name_of_record(std::int64_t step) { return fmt::format("step-{}", step); }

void require_one_line(std::string_view name) {
  if (name.find_first_of("\n\r") != name.npos)
    throw Error(ErrorCode::kInvalidArgument, "the name of a metric or tag is one line");
}

std::pair<std::string, double> parse_metric(std::string_view rest) {
  double value = 0;
  const char* const end = rest.data() + rest.size();
  const auto [at, error] = std::from_chars(rest.data(), end, value);
  if (error != std::errc() || at == end || *at != ' ')
    throw Error(ErrorCode::kCorrupt, fmt::format("'{}' is no metric with its value", rest.substr(0, 100)));
  return {std::string(at + 1, end), value};
}

}  // namespace

std::string text_of(const StepRecord& record) {
  std::string text;
  if (record.own) text += "own\n";
  if (record.abandoned) text += "abandoned\n";
  for (const auto& [name, value] : record.metrics) {
    require_one_line(name);
    text += fmt::format("metric {} {}\n", value, name);
  }
  for (const std::string& tag : record.tags) {
    require_one_line(tag);
    text += fmt::format("tag {}\n", tag);
  }
  for (const std::string& line : record.others) text += line + "\n";
  if (text.size() > kMostText) throw Error(ErrorCode::kLimit, "a step's record of more than 1 MiB");
  return text;
}

StepRecord parse_record(std::string_view text) {
  if (text.size() > kMostText) throw Error(ErrorCode::kLimit, "a step's record of more than 1 MiB");
  StepRecord record;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) throw Error(ErrorCode::kCorrupt, "the last line of a step's record has no end");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == kOwnLine)
      record.own = true;
    else if (line == kAbandonedLine)
      record.abandoned = true;
    else if (line.starts_with(kMetric))
      record.metrics.insert(parse_metric(line.substr(kMetric.size())));
    else if (line.starts_with(kTag))
      record.tags.emplace(line.substr(kTag.size()));
    else
      record.others.emplace_back(line);
  }
  return record;
}

std::optional<StepRecord> read_record(const FileSystem& notes, std::int64_t step) try {
  const auto source = notes.open(name_of_record(step));
  if (source->size() > kMostText)
    throw Error(ErrorCode::kLimit, "a step's record of more than 1 MiB").in_file(source->name());
  try {
    return parse_record(read_all(*source));
  } catch (Error& e) {
    e.in_file(source->name());
    throw;
  }
} catch (const Error& e) {
  if (e.code() == ErrorCode::kNotFound) return std::nullopt;
  throw;
}

void change_record(FileSystem& notes, std::int64_t step, const std::function<void(StepRecord&)>& change) {
  const std::string name = name_of_record(step);
  const bool compares = notes.capabilities().replace_if_unchanged;
  for (int tries = 1;; ++tries) {
    const auto version = notes.version_of(name);
    StepRecord record = read_record(notes, step).value_or(StepRecord());
    change(record);
    try {
      return write_file(notes, name, text_of(record),
                        {.replace = version.has_value(), .expected = compares ? version : std::nullopt});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kConflict || tries == kMostTries) throw;
    }
  }
}

void remove_record(FileSystem& notes, std::int64_t step) {
  notes.remove_all(std::vector{name_of_record(step)});
}

}  // namespace cairn
