// cairn bench: how fast saving and loading is on this machine and file system, and how fast it could be.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "command.h"
#include "json.h"
#include "measure/bench.h"
#include "output.h"
#include "progress.h"
#include "stop_signals.h"
#include "text.h"

namespace cairn::cli {
namespace {

std::string time_text(double seconds) {
  if (seconds < 0.01) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return seconds < 1 ? fmt::format("{:.0f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

std::string way_text(const RawTiming& raw) {
  return fmt::format("{}, {} the page cache", counted(static_cast<std::uint64_t>(raw.files), "file"),
                     raw.direct ? "past" : "through");
}

// Prints the lines of the table; a rate of all bytes, and what part of the raw limit that is.
class BenchTable {
 public:
  BenchTable(const BenchReport& report, Output& out)
      : gigabytes_(static_cast<double>(report.bytes) / 1e9), out_(out) {}

  void heading() {
    out_.style(Output::Style::kBold);
    line("", "time", "GB/s", "of raw", "");
    out_.style(Output::Style::kPlain);
  }
  void time(std::string_view name, double seconds) { line(name, time_text(seconds), "", "", ""); }
  void rate(std::string_view name, double seconds, std::string_view note = "") {
    line(name, time_text(seconds), fmt::format("{:.2f}", gigabytes_ / seconds), "", note);
  }
  void ratio(std::string_view name, double seconds, double limit) {
    line(name, time_text(seconds), fmt::format("{:.2f}", gigabytes_ / seconds),
         fmt::format("{:.2f}", limit / seconds), "");
  }
  void text(std::string_view name) { line(name, "", "", "", ""); }

 private:
  void line(std::string_view name, std::string_view time, std::string_view rate, std::string_view ratio,
            std::string_view note) {
    std::string text = fmt::format("{:<20}{:>10}{:>9}{:>9}   {}", name, time, rate, ratio, note);
    text.erase(text.find_last_not_of(' ') + 1);
    out_.text(text + "\n");
  }

  double gigabytes_;
  Output& out_;
};

void print_async(std::string_view name, const AsyncTiming& timing, double limit, BenchTable& table) {
  table.text(name);
  table.time("  call returns", timing.returned);
  table.rate("  state is free", timing.staged);
  table.ratio("  checkpoint there", timing.done, limit);
}

void print_report(const BenchReport& report, bool kept, Output& out) {
  const std::string system = report.file_system.empty() ? "unknown file system" : report.file_system;
  out.text(fmt::format("{} in {} and {}; {}, {}\n\n", human_bytes(report.bytes).view(),
                       counted(static_cast<std::uint64_t>(report.tensors), "tensor"),
                       counted(static_cast<std::uint64_t>(report.files), "file"), visible(system),
                       counted(static_cast<std::uint64_t>(report.cores), "core")));
  const std::string_view cold = report.cold ? ", cold" : "";
  BenchTable table(report, out);
  table.heading();
  table.rate("raw write", report.raw_write.seconds, way_text(report.raw_write));
  table.rate(fmt::format("raw read{}", cold), report.raw_read.seconds, way_text(report.raw_read));
  table.ratio("save", report.save, report.raw_write.seconds);
  table.ratio(fmt::format("load{}", cold), report.load, report.raw_read.seconds);
  table.ratio(fmt::format("verify{}", cold), report.verify, report.raw_read.seconds);
  print_async("async_save, first", report.first_async, report.raw_write.seconds, table);
  print_async("async_save, later", report.next_async, report.raw_write.seconds, table);
  if (!report.cold)
    out.text(
        "\nReads were not cold: the system keeps the files in memory, so they may be faster than the "
        "disk.\n");
  if (kept) out.text(fmt::format("\nThe checkpoint is at {}\n", visible(report.checkpoint)));
}

class JsonBench {
 public:
  JsonBench(const BenchReport& report, Output& out) : report_(report), json_(out) {}

  void print(bool kept) {
    json_.begin_object();
    json_.member("file_system", std::string_view(report_.file_system));
    json_.member("cores", report_.cores);
    json_.member("bytes", report_.bytes);
    json_.member("tensors", report_.tensors);
    json_.member("files", report_.files);
    json_.member("cold", report_.cold);
    raw("raw_write", report_.raw_write);
    raw("raw_read", report_.raw_read);
    operation("save", report_.save, report_.raw_write);
    operation("load", report_.load, report_.raw_read);
    operation("verify", report_.verify, report_.raw_read);
    async("async_first", report_.first_async);
    async("async_later", report_.next_async);
    json_.key("checkpoint");
    kept ? json_.value(std::string_view(report_.checkpoint)) : json_.null();
    json_.end_object();
  }

 private:
  void begin(std::string_view name, double seconds) {
    json_.new_line();
    json_.key(name);
    json_.begin_object();
    json_.member("seconds", seconds);
    json_.member("bytes_per_second", static_cast<double>(report_.bytes) / seconds);
  }
  void raw(std::string_view name, const RawTiming& timing) {
    begin(name, timing.seconds);
    json_.member("files", timing.files);
    json_.member("direct", timing.direct);
    json_.end_object();
  }
  void operation(std::string_view name, double seconds, const RawTiming& limit) {
    begin(name, seconds);
    json_.member("of_raw", limit.seconds / seconds);
    json_.end_object();
  }
  void async(std::string_view name, const AsyncTiming& timing) {
    begin(name, timing.done);
    json_.member("of_raw", report_.raw_write.seconds / timing.done);
    json_.member("returned", timing.returned);
    json_.member("staged", timing.staged);
    json_.end_object();
  }

  const BenchReport& report_;
  JsonWriter json_;
};

class BenchCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "A new or an empty directory on the file system to measure")->required();
    app.add_option("--size", options_.bytes, "Bytes of the state (2GiB); the memory needed is twice that")
        ->transform(CLI::AsSizeValue(true));
    app.add_option("--tensors", options_.tensors, "How many tensors it has (64)")
        ->check(CLI::Range(1, 10'000'000));
    app.add_option("--files", options_.files, "How many files a save writes at once (as a save chooses them)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--keep", options_.keep, "Leave the checkpoint, to look at");
    app.add_flag("--json", json_, "Print one JSON document");
  }
  void run(Output& out) override {
    BenchReport report;
    {
      ProgressBar bar;
      options_.progress = [&](const Progress& progress) { bar.show(progress); };
      run_until_signal([&](const std::atomic<bool>& stopped) {
        options_.cancelled = &stopped;
        report = bench(path_, options_);
      });
    }
    if (json_) {
      JsonBench(report, out).print(options_.keep);
      out.put('\n');
    } else {
      print_report(report, options_.keep, out);
    }
  }

 private:
  std::string path_;
  BenchOptions options_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench() { return std::make_unique<BenchCommand>(); }

}  // namespace cairn::cli
