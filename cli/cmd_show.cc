// cairn show: one tensor or object.
#include "show.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "command.h"
#include "near.h"
#include "output.h"

namespace cairn::cli {
namespace {

bool has_object(const Checkpoint& checkpoint, std::string_view name) {
  for (const ObjectSummary& object : checkpoint.objects())
    if (object.name == name) return true;
  return false;
}

// The library knows why a tensor is missing and which tensors have similar names; objects are added here.
[[noreturn]] void fail_unknown(const Checkpoint& checkpoint, std::string_view name) {
  std::vector<std::string_view> objects;
  for (const ObjectSummary& object : checkpoint.objects()) objects.push_back(object.name);
  const std::string near = did_you_mean(name, objects);
  if (near.empty()) checkpoint.read(name);
  throw Error(ErrorCode::kNotFound, fmt::format("no tensor or object '{}'{}", name, near));
}

Selection selection_of(const TensorSummary& tensor, std::string_view slice) {
  if (slice.empty()) return {};
  try {
    return parse_selection(slice, tensor.shape);
  } catch (Error& error) {
    error.of_tensor(tensor.name);
    throw;
  }
}

class Show : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "A checkpoint: a directory, a .pt or a .safetensors file")->required();
    app.add_option("NAME", name_, "A tensor or object; a tensor may carry a slice: 'model.w[0:16, ::2]'")
        ->required();
    app.add_flag("--full", options_.full, "All values, not only the corners of a large tensor");
    app.add_option("--precision", options_.precision, "Digits after the point (default 4)")
        ->check(CLI::Range(0, 20));
    app.add_flag("--no-stats", options_.no_statistics,
                 "Values only: of a large tensor only the corners are read");
    app.add_flag("--json", options_.json, "Print one JSON document");
  }

  void run(Output& out) override {
    checkpoint_ = Checkpoint::open(path_);
    // A name may itself contain brackets, so it is tried as a whole before a slice is taken off.
    if (show_entry(*checkpoint_, name_, "", out)) return;
    const std::size_t bracket = name_.ends_with(']') ? name_.rfind('[') : std::string::npos;
    if (bracket == std::string::npos) fail_unknown(*checkpoint_, name_);
    const std::string_view base = std::string_view(name_).substr(0, bracket);
    if (!show_entry(*checkpoint_, base, std::string_view(name_).substr(bracket), out))
      fail_unknown(*checkpoint_, base);
  }

 private:
  // False when there is nothing of that name.
  bool show_entry(const Checkpoint& checkpoint, std::string_view name, std::string_view slice,
                  Output& out) const {
    if (const std::optional<std::size_t> tensor = checkpoint.find_tensor(name)) {
      const Selection selection = selection_of(checkpoint.tensors()[*tensor], slice);
      show_tensor(checkpoint, *tensor, slice, selection, options_, out);
      return true;
    }
    if (!has_object(checkpoint, name)) return false;
    if (!slice.empty())
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is an object and takes no slice", name));
    show_object(checkpoint, name, options_, out);
    return true;
  }

  std::string path_;
  std::string name_;
  ShowOptions options_;
  std::unique_ptr<Checkpoint> checkpoint_;  // until the process ends
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<Show>(); }

}  // namespace cairn::cli
