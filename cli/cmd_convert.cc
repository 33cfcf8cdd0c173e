// cairn convert: from one format to another, with other names, element types, files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/convert.h"
#include "cairn/error.h"
#include "command.h"
#include "json.h"
#include "output.h"
#include "progress.h"
#include "stop_signals.h"
#include "text.h"

namespace cairn::cli {
namespace {

[[noreturn]] void bad(std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); }

// "GLOB=DTYPE", or "DTYPE" for everything.
CastRule parse_cast(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  const std::string name = equals == text.npos ? text : text.substr(equals + 1);
  const auto dtype = dtype_from_name(name);
  if (!dtype) bad(fmt::format("--dtype: there is no element type '{}'; float32 and bfloat16 are some", name));
  return {equals == text.npos ? "*" : text.substr(0, equals), *dtype};
}

Format parse_format(const std::string& name) {
  for (const Format format : {Format::kDcp, Format::kTorchFile, Format::kSafetensors, Format::kHuggingFace})
    if (name_of(format) == name) return format;
  bad(fmt::format("--to: there is no format '{}'; dcp, torch, safetensors and huggingface are known", name));
}

std::string_view words_for(Format format) {
  switch (format) {
    case Format::kDcp: return "DCP checkpoint";
    case Format::kTorchFile: return "torch.save file";
    case Format::kSafetensors: return "safetensors file";
    case Format::kHuggingFace: return "directory of safetensors files";
  }
  return "";
}

void print_plan(const ConvertReport& report, Output& out) {
  for (const ConvertedTensor& tensor : report.tensors) {
    std::string line = visible(tensor.from);
    if (tensor.name != tensor.from) line += " -> " + visible(tensor.name);
    line += fmt::format("  {} {}", name_of(tensor.from_dtype), to_string(tensor.shape));
    if (tensor.dtype != tensor.from_dtype) line += fmt::format(" -> {}", name_of(tensor.dtype));
    if (!tensor.file.empty()) line += "  " + visible(tensor.file);
    out.text(line + "\n");
  }
  for (const ConvertedObject& object : report.objects) {
    std::string line = visible(object.from);
    if (object.name != object.from) line += " -> " + visible(object.name);
    out.text(line + "  object\n");
  }
  out.put('\n');
}

void print_report(const ConvertReport& report, bool dry_run, Output& out) {
  if (dry_run) print_plan(report, out);
  out.text(fmt::format("{} {} from a {} to a {}: {}, {}, {}\n", dry_run ? "would convert" : "converted",
                       human_bytes(report.bytes).view(), words_for(report.from), words_for(report.to),
                       counted(report.tensors.size(), "tensor"), counted(report.objects.size(), "object"),
                       counted(report.files.size(), "file")));
  for (const std::string& name : report.dropped)
    out.text(fmt::format("left out     {} (an object)\n", visible(name)));
  if (dry_run) return;
  out.text(
      fmt::format("compared     {} of the source with its checksums\n", human_bytes(report.verified).view()));
  out.text(fmt::format("read back    {} of the destination\n", human_bytes(report.read_back).view()));
}

class JsonConversion {
 public:
  JsonConversion(const ConvertReport& report, Output& out) : report_(report), json_(out) {}

  void print(bool dry_run) {
    json_.begin_object();
    json_.member("from", name_of(report_.from));
    json_.member("to", name_of(report_.to));
    json_.member("dry_run", dry_run);
    json_.member("bytes", report_.bytes);
    json_.member("verified", report_.verified);
    json_.member("read_back", report_.read_back);
    list("files", report_.files, [this](const ConvertedFile& file) {
      json_.member("name", std::string_view(file.name));
      json_.member("bytes", file.bytes);
    });
    list("tensors", report_.tensors, [this](const ConvertedTensor& tensor) { print(tensor); });
    list("objects", report_.objects, [this](const ConvertedObject& object) {
      json_.member("from", std::string_view(object.from));
      json_.member("name", std::string_view(object.name));
    });
    json_.key("dropped");
    json_.begin_array();
    for (const std::string& name : report_.dropped) json_.value(std::string_view(name));
    json_.end_array();
    json_.end_object();
  }

 private:
  void print(const ConvertedTensor& tensor) {
    json_.member("from", std::string_view(tensor.from));
    json_.member("name", std::string_view(tensor.name));
    json_.member("from_dtype", name_of(tensor.from_dtype));
    json_.member("dtype", name_of(tensor.dtype));
    json_.member("shape", tensor.shape);
    json_.member("bytes", tensor.bytes);
    json_.member("file", std::string_view(tensor.file));
  }
  template <class Items, class Print>
  void list(std::string_view name, const Items& items, const Print& print_one) {
    json_.new_line();
    json_.key(name);
    json_.begin_array();
    for (const auto& item : items) {
      json_.new_line();
      json_.begin_object();
      print_one(item);
      json_.end_object();
    }
    json_.end_array();
  }

  const ConvertReport& report_;
  JsonWriter json_;
};

class ConvertCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("SRC", source_, "A checkpoint: a directory, a .pt or a .safetensors file")->required();
    app.add_option("DST", destination_, "What to make: its name says the format, unless --to does")
        ->required();
    app.add_option("--to", to_, "dcp, torch, safetensors or huggingface (a directory of safetensors files)");
    app.add_option("--keys", options_.keys, "Only entries whose name matches this glob; may be given again")
        ->allow_extra_args(false);
    app.add_option("--exclude", options_.exclude,
                   "No entries whose name matches this glob; may be given again")
        ->allow_extra_args(false);
    app.add_option("--map", map_, "A file of lines 'REGEX -> REPLACEMENT' for the names");
    app.add_option("--dtype", casts_,
                   "GLOB=DTYPE: convert the elements; may be given again, the first match counts")
        ->allow_extra_args(false);
    app.add_option("--shards", options_.shards, "At most so many safetensors files")
        ->check(CLI::Range(1, 99999));
    app.add_option("--max-shard-size", options_.max_shard_size, "Bytes in a safetensors file (5GB)")
        ->transform(CLI::AsSizeValue(true));
    app.add_option("--ranks", options_.ranks, "DCP: as if so many ranks had saved (1)")
        ->check(CLI::Range(1, 4096));
    app.add_option("--files", options_.files, "DCP: files of each rank (as a save chooses)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--zstd", zstd_, "DCP: compress each item");
    app.add_option("--budget", options_.memory_budget, "Memory for buffers (256MiB)")
        ->transform(CLI::AsSizeValue(true));
    app.add_option("-j,--threads", options_.threads,
                   "How many threads (as many as there are cores, at least 4)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--skip-objects", options_.skip_objects,
                 "Leave out what safetensors cannot hold, and list it");
    app.add_flag("--overwrite", options_.overwrite, "Replace a destination that is there");
    app.add_flag("--no-verify", no_verify_, "Do not read the destination back");
    app.add_flag("--dry-run", options_.dry_run, "Only say what would be written");
    app.add_flag("--json", json_, "Print one JSON document");
  }

  void run(Output& out) override {
    prepare();
    ConvertReport report;
    {
      ProgressBar bar;
      options_.progress = [&](const Progress& progress) { bar.show(progress); };
      run_until_signal([&](const std::atomic<bool>& stopped) {
        options_.cancelled = &stopped;
        report = convert(source_, destination_, options_);
      });
    }
    if (json_) {
      JsonConversion(report, out).print(options_.dry_run);
      out.put('\n');
    } else {
      print_report(report, options_.dry_run, out);
    }
  }

 private:
  void prepare() {
    if (!to_.empty()) options_.to = parse_format(to_);
    if (!map_.empty()) options_.map = read_key_rules(map_);
    for (const std::string& cast : casts_) options_.casts.push_back(parse_cast(cast));
    if (zstd_) options_.transforms = {"zstd"};
    options_.verify = !no_verify_;
  }

  std::string source_, destination_, to_, map_;
  std::vector<std::string> casts_;
  ConvertOptions options_;
  bool zstd_ = false, no_verify_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_convert() { return std::make_unique<ConvertCommand>(); }

}  // namespace cairn::cli
