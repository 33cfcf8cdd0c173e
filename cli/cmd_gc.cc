// cairn gc: removes what dead saves left behind.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/gc.h"
#include "command.h"
#include "json.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

void print_report_json(const GcReport& report, bool dry_run, Output& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("dry_run", dry_run);
  json.member("bytes", report.bytes);
  json.key("files");
  json.begin_array();
  for (const FileEntry& file : report.files) {
    json.new_line();
    json.begin_object();
    json.member("file", std::string_view(file.name));
    json.member("bytes", file.size);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  out.put('\n');
}

void print_report(const GcReport& report, bool dry_run, Output& out) {
  for (const FileEntry& file : report.files)
    out.text(fmt::format("{:>10}  {}\n", human_bytes(file.size).view(), visible(file.name)));
  if (report.files.empty()) return out.text("nothing to remove\n");
  out.text(fmt::format("{}, {}, {}\n", counted(report.files.size(), "file"), human_bytes(report.bytes).view(),
                       dry_run ? "would be removed" : "removed"));
}

class Gc : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "The directory of a checkpoint, or of a save that did not finish")
        ->required();
    app.add_flag("-n,--dry-run", options_.dry_run, "Only say what would be removed");
    app.add_flag("--force", options_.force, "Also where the file system has no locks that keep saves out");
    app.add_option("--age", age_, "In buckets: how old files have to be, such as 90m or 2h (1h)")
        ->transform(CLI::AsNumberWithUnit(
            std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
            CLI::AsNumberWithUnit::CASE_INSENSITIVE, "TIME"))
        ->check(CLI::Range(0.0, 3e9))
        ->option_text("TIME");
    app.add_flag("--json", json_, "Print one JSON document");
  }
  void run(Output& out) override {
    if (age_) options_.age = std::chrono::seconds(static_cast<std::int64_t>(*age_));
    const GcReport report = gc(path_, options_);
    json_ ? print_report_json(report, options_.dry_run, out) : print_report(report, options_.dry_run, out);
  }

 private:
  std::string path_;
  GcOptions options_;
  std::optional<double> age_;  // in seconds
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_gc() { return std::make_unique<Gc>(); }

}  // namespace cairn::cli
