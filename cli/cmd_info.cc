// cairn info: what a checkpoint is, as a whole.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"
#include "command.h"
#include "json.h"
#include "oddities.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

struct DTypeCount {
  DType dtype = DType::kFloat32;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

// Everything the command says, gathered before a word is printed.
struct Summary {
  std::string_view format;
  std::vector<std::pair<std::string, std::string>> facts;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t object_bytes = 0;
  std::uint64_t elements = 0;
  std::uint64_t chunks = 0;
  std::uint64_t files = 0;  // that are referenced
  std::uint64_t file_bytes = 0;
  std::vector<DTypeCount> dtypes;    // most bytes first
  std::vector<std::size_t> largest;  // positions of tensors
  std::vector<Oddity> oddities;
};

std::vector<DTypeCount> count_dtypes(const std::vector<TensorSummary>& tensors) {
  std::array<DTypeCount, kDTypeCount> all;
  for (const TensorSummary& tensor : tensors) {
    DTypeCount& row = all[static_cast<std::size_t>(tensor.dtype)];
    row.dtype = tensor.dtype;
    ++row.tensors;
    row.bytes = saturating_add(row.bytes, tensor.bytes);
  }
  std::vector<DTypeCount> used;
  std::copy_if(all.begin(), all.end(), std::back_inserter(used),
               [](const auto& row) { return row.tensors > 0; });
  std::stable_sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return used;
}

std::vector<std::size_t> find_largest(const std::vector<TensorSummary>& tensors) {
  constexpr std::size_t kShown = 5;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min(kShown, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return tensors[a].bytes != tensors[b].bytes ? tensors[a].bytes > tensors[b].bytes
                                                                  : a < b;
                    });
  order.resize(shown);
  return order;
}

Summary summarize(const Checkpoint& checkpoint) {
  Summary s;
  s.format = name_of(checkpoint.format());
  s.facts = checkpoint.facts();
  for (const TensorSummary& tensor : checkpoint.tensors()) {
    s.tensor_bytes = saturating_add(s.tensor_bytes, tensor.bytes);
    s.elements = saturating_add(s.elements, tensor.bytes / item_size(tensor.dtype));
    s.chunks += tensor.chunks;
  }
  for (const ObjectSummary& object : checkpoint.objects())
    s.object_bytes = saturating_add(s.object_bytes, object.bytes);
  const std::vector<FileSummary> files = checkpoint.files();
  for (const FileSummary& file : files) {
    if (!file.referenced) continue;
    ++s.files;
    s.file_bytes = saturating_add(s.file_bytes, file.size.value_or(0));
  }
  s.dtypes = count_dtypes(checkpoint.tensors());
  s.largest = find_largest(checkpoint.tensors());
  s.oddities = find_oddities(checkpoint, files);
  return s;
}

void print_summary_json(const Checkpoint& checkpoint, const Summary& s, Output& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("format", s.format);
  json.key("facts");
  json.begin_object();
  for (const auto& [name, value] : s.facts) json.member(name, std::string_view(value));
  json.end_object();
  json.member("tensors", checkpoint.tensors().size());
  json.member("objects", checkpoint.objects().size());
  json.member("chunks", s.chunks);
  json.member("elements", s.elements);
  json.member("tensor_bytes", s.tensor_bytes);
  json.member("object_bytes", s.object_bytes);
  json.member("files", s.files);
  json.member("file_bytes", s.file_bytes);
  json.key("dtypes");
  json.begin_array();
  for (const DTypeCount& row : s.dtypes) {
    json.begin_object();
    json.member("dtype", name_of(row.dtype));
    json.member("tensors", row.tensors);
    json.member("bytes", row.bytes);
    json.end_object();
  }
  json.end_array();
  json.key("largest");
  json.begin_array();
  for (const std::size_t i : s.largest) {
    const TensorSummary& tensor = checkpoint.tensors()[i];
    json.begin_object();
    json.member("name", tensor.name);
    json.member("dtype", name_of(tensor.dtype));
    json.member("shape", tensor.shape);
    json.member("bytes", tensor.bytes);
    json.end_object();
  }
  json.end_array();
  json.key("odd");
  json.begin_array();
  for (const Oddity& oddity : s.oddities) {
    json.new_line();
    json.begin_object();
    json.member("kind", oddity.kind);
    json.member("subject", std::string_view(oddity.subject));
    json.member("text", std::string_view(oddity.text));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  out.put('\n');
}

void print_title(Output& out, std::string_view title) {
  out.put('\n');
  out.style(Output::Style::kBold);
  out.text(title);
  out.style(Output::Style::kPlain);
  out.put('\n');
}

void print_oddities(const std::vector<Oddity>& oddities, Output& out) {
  constexpr std::size_t kShownOfAKind = 10;
  print_title(out, "looks odd");
  if (oddities.empty()) return out.text("  nothing\n");
  for (std::size_t i = 0; i < oddities.size();) {
    std::size_t end = i;
    while (end < oddities.size() && oddities[end].kind == oddities[i].kind) ++end;
    for (std::size_t k = i; k < std::min(end, i + kShownOfAKind); ++k) {
      out.text("  ");
      out.style(Output::Style::kWarning);
      const std::string subject = visible(oddities[k].subject);
      out.text((subject.empty() ? "" : subject + ": ") + visible(oddities[k].text, Backslash::kKeep));
      out.style(Output::Style::kPlain);
      out.put('\n');
    }
    if (end - i > kShownOfAKind)
      out.text(fmt::format("  ... and {} more like this\n", end - i - kShownOfAKind));
    i = end;
  }
}

void print_facts(const Checkpoint& checkpoint, const Summary& s, Output& out) {
  std::vector<std::pair<std::string, std::string>> facts{{"format", std::string(s.format)}};
  for (const auto& fact : s.facts)
    if (fact.first != "format") facts.push_back(fact);
  facts.emplace_back("tensors",
                     fmt::format("{} in {}, {} elements, {}", checkpoint.tensors().size(),
                                 counted(s.chunks, "chunk"), s.elements, human_bytes(s.tensor_bytes).view()));
  facts.emplace_back("objects", fmt::format("{}, {} as stored", checkpoint.objects().size(),
                                            human_bytes(s.object_bytes).view()));
  facts.emplace_back("files", fmt::format("{}, {} on disk", s.files, human_bytes(s.file_bytes).view()));
  std::size_t width = 0;
  for (auto& [name, value] : facts) {
    name = visible(name, Backslash::kKeep);
    width = std::max(width, name.size());
  }
  for (const auto& [name, value] : facts)
    out.text(fmt::format("{:<{}}  {}\n", name, width, visible(value, Backslash::kKeep)));
}

void print_summary(const Checkpoint& checkpoint, const Summary& s, Output& out) {
  print_facts(checkpoint, s, out);
  if (!s.dtypes.empty()) print_title(out, "element types");
  for (const DTypeCount& row : s.dtypes)
    out.text(fmt::format("  {:<16}{:>10}  {}\n", name_of(row.dtype), human_bytes(row.bytes).view(),
                         counted(row.tensors, "tensor")));
  if (!s.largest.empty()) print_title(out, "largest");
  for (const std::size_t i : s.largest) {
    const TensorSummary& tensor = checkpoint.tensors()[i];
    out.text(fmt::format("  {:>10}  {}  {} {}\n", human_bytes(tensor.bytes).view(), visible(tensor.name),
                         name_of(tensor.dtype), to_string(tensor.shape)));
  }
  print_oddities(s.oddities, out);
}

class Info : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "A checkpoint: a directory, a .pt or a .safetensors file")->required();
    app.add_flag("--json", json_, "Print one JSON document");
  }
  void run(Output& out) override {
    checkpoint_ = Checkpoint::open(path_);
    const Summary summary = summarize(*checkpoint_);
    if (json_) return print_summary_json(*checkpoint_, summary, out);
    print_summary(*checkpoint_, summary, out);
  }

 private:
  std::string path_;
  bool json_ = false;
  std::unique_ptr<Checkpoint> checkpoint_;  // until the process ends
};

}  // namespace

std::unique_ptr<Command> make_info() { return std::make_unique<Info>(); }

}  // namespace cairn::cli
