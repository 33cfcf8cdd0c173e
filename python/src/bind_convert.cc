// Converting between formats, without torch.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cairn/convert.h"
#include "cairn/error.h"
#include "options.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

using Texts = std::vector<std::string>;

Format to_format(const std::string& name) {
  for (const Format format : {Format::kDcp, Format::kTorchFile, Format::kSafetensors, Format::kHuggingFace})
    if (name_of(format) == name) return format;
  throw Error(ErrorCode::kInvalidArgument,
              "there is no format '" + name + "'; dcp, torch, safetensors and huggingface are known");
}

// Pairs out of a dict or a list of pairs.
std::vector<std::pair<std::string, std::string>> to_pairs(nb::handle value) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const nb::object items = nb::isinstance<nb::dict>(value) ? value.attr("items")() : nb::borrow(value);
  for (nb::handle pair : items) pairs.emplace_back(to_text(pair[0]), to_text(pair[1]));
  return pairs;
}

std::vector<KeyRule> to_rules(nb::handle value) {
  std::vector<KeyRule> rules;
  for (auto& [pattern, replacement] : to_pairs(value)) rules.push_back({pattern, replacement});
  return rules;
}

// A name for all tensors, or pairs of a glob and a name.
std::vector<CastRule> to_casts(nb::handle value) {
  if (nb::isinstance<nb::str>(value)) return {{"*", to_dtype(value)}};
  std::vector<CastRule> casts;
  const nb::object items = nb::isinstance<nb::dict>(value) ? value.attr("items")() : nb::borrow(value);
  for (nb::handle pair : items) casts.push_back({to_text(pair[0]), to_dtype(pair[1])});
  return casts;
}

std::map<std::string, int> to_numbers(nb::handle value) {
  std::map<std::string, int> numbers;
  for (nb::handle pair : value.attr("items")()) numbers[to_text(pair[0])] = nb::cast<int>(pair[1]);
  return numbers;
}

bool apply_choice(const std::string& name, nb::handle value, ConvertOptions& options) {
  if (name == "to")
    options.to = to_format(nb::cast<std::string>(value));
  else if (name == "keys")
    options.keys = nb::cast<Texts>(value);
  else if (name == "exclude")
    options.exclude = nb::cast<Texts>(value);
  else if (name == "map")
    options.map = to_rules(value);
  else if (name == "dtype")
    options.casts = to_casts(value);
  else if (name == "skip_objects")
    options.skip_objects = nb::cast<bool>(value);
  else if (name == "overwrite")
    options.overwrite = nb::cast<bool>(value);
  else if (name == "verify")
    options.verify = nb::cast<bool>(value);
  else if (name == "durable")
    options.durable = nb::cast<bool>(value);
  else if (name == "dry_run")
    options.dry_run = nb::cast<bool>(value);
  else if (name == "memory_budget")
    options.memory_budget = nb::cast<std::uint64_t>(value);
  else if (name == "threads")
    options.threads = nb::cast<int>(value);
  else
    return false;
  return true;
}

bool apply_layout(const std::string& name, nb::handle value, ConvertOptions& options) {
  if (name == "shards")
    options.shards = nb::cast<int>(value);
  else if (name == "max_shard_size")
    options.max_shard_size = nb::cast<std::uint64_t>(value);
  else if (name == "file_of")
    options.file_of = to_numbers(value);
  else if (name == "only_files")
    options.only_files = nb::cast<std::vector<int>>(value);
  else if (name == "index")
    options.index = nb::cast<bool>(value);
  else if (name == "metadata")
    options.metadata = to_pairs(value);
  else if (name == "ranks")
    options.ranks = nb::cast<int>(value);
  else if (name == "files")
    options.files = nb::cast<int>(value);
  else if (name == "transforms")
    options.transforms = nb::cast<Texts>(value);
  else if (name == "max_item_bytes")
    options.max_item_bytes = nb::cast<std::uint64_t>(value);
  else
    return false;
  return true;
}

ConvertOptions to_options(const nb::dict& given) {
  ConvertOptions options;
  for (const auto& [key, value] : given) {
    const std::string name = to_text(key);
    if (value.is_none()) continue;
    try {
      if (name == "progress")
        options.progress = to_progress(value);
      else if (!apply_choice(name, value, options) && !apply_layout(name, value, options))
        throw Error(ErrorCode::kInvalidArgument, "there is no option '" + name + "'");
    } catch (const nb::cast_error&) {
      throw Error(ErrorCode::kInvalidArgument,
                  "option '" + name + "' cannot be " + nb::cast<std::string>(nb::repr(value)));
    }
  }
  return options;
}

nb::dict to_python(const ConvertedTensor& tensor) {
  nb::dict row;
  row["from"] = to_str(tensor.from);
  row["name"] = to_str(tensor.name);
  row["from_dtype"] = to_str(name_of(tensor.from_dtype));
  row["dtype"] = to_str(name_of(tensor.dtype));
  row["shape"] = nb::list(to_tuple(tensor.shape));
  row["bytes"] = tensor.bytes;
  row["file"] = to_str(tensor.file);
  return row;
}

// As `cairn convert --json` has it.
nb::dict to_python(const ConvertReport& done, bool dry_run) {
  nb::dict report;
  report["from"] = to_str(name_of(done.from));
  report["to"] = to_str(name_of(done.to));
  report["dry_run"] = dry_run;
  report["bytes"] = done.bytes;
  report["verified"] = done.verified;
  report["read_back"] = done.read_back;
  nb::list files, tensors, objects, dropped;
  for (const ConvertedFile& file : done.files) {
    nb::dict row;
    row["name"] = to_str(file.name);
    row["bytes"] = file.bytes;
    files.append(row);
  }
  for (const ConvertedTensor& tensor : done.tensors) tensors.append(to_python(tensor));
  for (const ConvertedObject& object : done.objects) {
    nb::dict row;
    row["from"] = to_str(object.from);
    row["name"] = to_str(object.name);
    objects.append(row);
  }
  for (const std::string& name : done.dropped) dropped.append(to_str(name));
  report["files"] = files;
  report["tensors"] = tensors;
  report["objects"] = objects;
  report["dropped"] = dropped;
  return report;
}

nb::dict convert_now(const std::filesystem::path& source, const std::filesystem::path& destination,
                     const nb::dict& given) {
  std::atomic<bool> cancelled = false;
  ConvertOptions options = to_options(given);
  options.cancelled = &cancelled;
  ConvertReport done;
  run_interruptibly([&] { done = convert(source.string(), destination.string(), options); }, cancelled);
  return to_python(done, options.dry_run);
}

}  // namespace

void bind_convert(nb::module_& m) { m.def("convert", convert_now, "source"_a, "destination"_a, "options"_a); }

}  // namespace cairn::python
