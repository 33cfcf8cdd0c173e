// cairn verify: is every byte of a checkpoint what was written?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cairn/verify.h"
#include "command.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "text.h"

namespace cairn::cli {
namespace {

void text_or_null(JsonWriter& json, std::string_view key, const std::string& text) {
  json.key(key);
  text.empty() ? json.null() : json.value(std::string_view(text));
}

void print_problem_json(const Problem& problem, JsonWriter& json) {
  json.new_line();
  json.begin_object();
  json.member("kind", name_of(problem.kind));
  text_or_null(json, "file", problem.file);
  text_or_null(json, "tensor", problem.tensor);
  json.key("offset");
  problem.offset ? json.value(*problem.offset) : json.null();
  json.member("text", std::string_view(problem.text));
  json.end_object();
}

void print_report_json(const VerifyReport& report, Output& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("ok", report.ok());
  json.member("format", name_of(report.format));
  json.member("files", report.files);
  json.member("tensors", report.tensors);
  json.member("objects", report.objects);
  json.member("items", report.items);
  json.member("bytes_checked", report.bytes_checked);
  json.key("unchecked");
  json.begin_array();
  for (const Unchecked& unchecked : report.unchecked) {
    json.begin_object();
    json.member("why", std::string_view(unchecked.why));
    json.member("bytes", unchecked.bytes);
    json.end_object();
  }
  json.end_array();
  json.key("debris");
  json.begin_array();
  for (const FileEntry& file : report.debris) {
    json.begin_object();
    json.member("file", std::string_view(file.name));
    json.member("bytes", file.size);
    json.end_object();
  }
  json.end_array();
  json.key("problems");
  json.begin_array();
  for (const Problem& problem : report.problems) print_problem_json(problem, json);
  json.end_array();
  json.member("problems_left_out", report.problems_left_out);
  json.end_object();
  out.put('\n');
}

void print_report(const VerifyReport& report, Output& out) {
  for (const Problem& problem : report.problems) {
    out.style(Output::Style::kWarning);
    out.text(visible(to_string(problem), Backslash::kKeep));
    out.style(Output::Style::kPlain);
    out.put('\n');
  }
  const std::uint64_t problems = report.problems.size() + report.problems_left_out;
  if (report.problems_left_out > 0) out.text(fmt::format("... and {} more\n", report.problems_left_out));
  if (problems > 0) out.put('\n');
  out.text(fmt::format("{} in {}: {}, {}, {}\n", counted(report.items, "item"), counted(report.files, "file"),
                       counted(report.tensors, "tensor"), counted(report.objects, "object"),
                       problems == 0 ? "no problem found" : counted(problems, "problem")));
  out.text(fmt::format("checked      {}\n", human_bytes(report.bytes_checked).view()));
  for (const Unchecked& unchecked : report.unchecked)
    out.text(fmt::format("not checked  {}: {}\n", human_bytes(unchecked.bytes).view(), unchecked.why));
  if (report.debris.empty()) return;
  std::uint64_t bytes = 0;
  for (const FileEntry& file : report.debris) bytes = saturating_add(bytes, file.size);
  out.text(fmt::format("left over    {} in {} of saves that did not finish ('cairn gc' removes them)\n",
                       human_bytes(bytes).view(), counted(report.debris.size(), "file")));
}

class VerifyCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "A checkpoint: a directory, a .pt or a .safetensors file")->required();
    app.add_option("-j,--threads", threads_, "How many threads read and compare (as many as there are cores)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--json", json_, "Print one JSON document");
  }
  void run(Output& out) override {
    VerifyReport report;
    {
      ProgressBar bar;
      VerifyOptions options;
      options.threads = threads_;
      options.progress = [&](const Progress& progress) { bar.show(progress); };
      report = verify(path_, options);
    }
    found_problems_ = !report.ok();
    json_ ? print_report_json(report, out) : print_report(report, out);
  }
  bool has_bad_news() const override { return found_problems_; }

 private:
  std::string path_;
  int threads_ = 0;
  bool json_ = false;
  bool found_problems_ = false;
};

}  // namespace

std::unique_ptr<Command> make_verify() { return std::make_unique<VerifyCommand>(); }

}  // namespace cairn::cli
