#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array_text.h"
#include "elements.h"
#include "json.h"
#include "output.h"
#include "show.h"
#include "statistics.h"
#include "text.h"

namespace cairn::cli {
namespace {

// The work goes in two passes over the selection: the first finds the range of the numbers, which the
// layout of the values and the bins of the histogram depend on. Small selections are read only once.
class TensorReport {
 public:
  TensorReport(SelectedTensor& tensor, const ShowOptions& options, Output& out)
      : tensor_(tensor),
        options_(options),
        out_(out),
        excerpt_(tensor.shape(), options.full),
        format_(tensor.family(), options.precision),
        // Sums over pairs of packed numbers would mean nothing.
        wants_statistics_(!options.no_statistics && tensor.family() != Family::kPacked &&
                          tensor.numel() > 0) {}

  void print_text(std::string_view slice) {
    print_heading(slice);
    first_pass();
    if (excerpt_.is_hopeless()) {
      out_.text("too many dimensions to show the corners; give a slice, or --full\n");
    } else if (!excerpt_.is_whole()) {
      ArrayText array(excerpt_, ArrayText::Look::kPeople, out_);
      for (const Element& element : corners_) array.next(format_(element));
      array.finish();
      out_.put('\n');
    }
    second_pass(ArrayText::Look::kPeople);
    if (excerpt_.is_whole()) out_.put('\n');
    if (wants_statistics_) print_statistics();
  }

  void print_json(const Selection& selection, std::string_view slice) {
    first_pass();
    JsonWriter json(out_);
    json.begin_object();
    json.member("name", tensor_.summary().name);
    json.member("kind", "tensor");
    json.member("dtype", name_of(tensor_.summary().dtype));
    json.member("shape", tensor_.summary().shape);
    json.key("selection");
    if (slice.empty()) {
      json.null();
    } else {
      json.begin_array();
      for (const Range& range : selection) {
        json.begin_object();
        json.member("start", range.start);
        json.member("count", range.count);
        json.member("step", range.step);
        json.end_object();
      }
      json.end_array();
    }
    json.member("selected_shape", tensor_.shape());
    json.key("values");
    if (excerpt_.is_whole()) {
      json.begin_raw();
      second_pass(ArrayText::Look::kJson);
    } else {
      second_pass(ArrayText::Look::kJson);
      json.null();
    }
    json_statistics(json);
    json.end_object();
    out_.put('\n');
  }

 private:
  void print_heading(std::string_view slice) {
    const TensorSummary& summary = tensor_.summary();
    out_.style(Output::Style::kBold);
    out_.text(visible(summary.name) + visible(slice, Backslash::kKeep));
    out_.style(Output::Style::kPlain);
    out_.text(fmt::format("  {} {}", name_of(summary.dtype), to_string(tensor_.shape())));
    if (!slice.empty()) out_.text(" of " + to_string(summary.shape));
    if (tensor_.family() == Family::kPacked) out_.text("  (two numbers in a byte, shown as bytes)");
    out_.put('\n');
  }

  void first_pass() {
    std::vector<std::int64_t> wanted;
    if (!excerpt_.is_whole() && !excerpt_.is_hopeless() && !options_.json) wanted = excerpt_.positions();
    auto next = wanted.begin();
    const auto visit = [&](const Block& block) {
      if (wants_statistics_) statistics_.add(block);
      if (excerpt_.is_whole() && !options_.json)
        for (std::size_t i = 0; i < block.count; ++i) format_.observe(block[i]);
      const std::int64_t end = block.first + static_cast<std::int64_t>(block.count);
      for (; next != wanted.end() && *next < end; ++next) {
        corners_.push_back(block[static_cast<std::size_t>(*next - block.first)]);
        format_.observe(corners_.back());
      }
    };
    const auto is_wanted = [&](std::int64_t first, std::int64_t count) {
      if (wants_statistics_ || (excerpt_.is_whole() && !options_.json)) return true;
      return next != wanted.end() && *next < first + count;
    };
    tensor_.each_block(visit, is_wanted);
    format_.settle();
    if (wants_statistics_ && statistics_.finite() > 0) histogram_.emplace(statistics_, tensor_.family());
  }

  void second_pass(ArrayText::Look look) {
    ArrayText array(excerpt_, look, out_);
    if (histogram_ || excerpt_.is_whole()) {
      tensor_.each_block([&](const Block& block) {
        if (histogram_) histogram_->add(block);
        if (!excerpt_.is_whole()) return;
        for (std::size_t i = 0; i < block.count; ++i)
          array.next(look == ArrayText::Look::kJson ? json_text(block[i]) : format_(block[i]));
      });
    }
    if (excerpt_.is_whole()) array.finish();
  }

  std::string json_text(const Element& e) const {
    switch (tensor_.family()) {
      case Family::kReal: return json_number(e.real);
      case Family::kComplex: return fmt::format("[{},{}]", json_number(e.real), json_number(e.imaginary));
      case Family::kSigned: return fmt::format("{}", static_cast<std::int64_t>(e.bits));
      case Family::kBool: return e.bits != 0 ? "true" : "false";
      default: return fmt::format("{}", e.bits);
    }
  }

  std::string extreme(const Element& e) const {
    switch (tensor_.family()) {
      case Family::kReal:
      case Family::kComplex: return fmt::format("{:.6g}", e.real);
      case Family::kSigned: return fmt::format("{}", static_cast<std::int64_t>(e.bits));
      default: return fmt::format("{}", e.bits);
    }
  }

  void print_statistics() {
    const Statistics& s = statistics_;
    const std::string_view of_what = tensor_.family() == Family::kComplex ? "  (of magnitudes)" : "";
    out_.text(
        fmt::format("\ncount {}  zero {}  nan {}  inf {}\n", s.count(), s.zeros(), s.nans(), s.infinities()));
    if (s.finite() == 0) return;
    out_.text(fmt::format("min {}  max {}  mean {:.6g}  std {}{}\n", extreme(s.exact_min()),
                          extreme(s.exact_max()), s.mean(), s.std() ? fmt::format("{:.6g}", *s.std()) : "-",
                          of_what));
    if (s.min() < s.max()) print_histogram(*histogram_);
  }

  void print_histogram(const Histogram& histogram) {
    constexpr std::size_t kBar = 40;
    std::uint64_t most = 1;
    std::vector<std::string> labels;
    std::size_t label_width = 0;
    for (std::size_t i = 0; i < histogram.bins(); ++i) {
      const std::vector<double>& edges = histogram.edges();
      const bool is_last = i + 1 == histogram.bins();
      labels.push_back(histogram.has_bin_per_value()
                           ? fmt::format("{:.6g}", edges[i])
                           : fmt::format("{:.4g} .. {:.4g}{}", edges[i], edges[i + 1], is_last ? "" : " "));
      label_width = std::max(label_width, labels.back().size());
      most = std::max(most, histogram.count(i));
    }
    out_.put('\n');
    for (std::size_t i = 0; i < histogram.bins(); ++i) {
      const double part = static_cast<double>(histogram.count(i)) / static_cast<double>(most);
      auto bar = static_cast<std::size_t>(std::llround(part * kBar));
      if (bar == 0 && histogram.count(i) > 0) bar = 1;  // rare is not never
      out_.text(fmt::format("  {:<{}}  {:>{}}", labels[i], label_width, histogram.count(i), digits(most)));
      if (bar > 0) out_.text("  ");
      out_.repeat('#', bar);
      out_.put('\n');
    }
  }

  void json_statistics(JsonWriter& json) {
    json.key("statistics");
    if (!wants_statistics_) {
      json.null();
      json.key("histogram");
      json.null();
      return;
    }
    const Statistics& s = statistics_;
    const bool finite = s.finite() > 0;
    const auto number = [&](std::string_view key, bool known, const std::string& text) {
      json.key(key);
      if (!known) return json.null();
      json.begin_raw();
      out_.text(text);
    };
    const auto exact = [&](const Element& e) {
      return tensor_.family() == Family::kComplex ? json_number(e.real)
             : tensor_.family() == Family::kBool  ? fmt::format("{}", e.bits)
                                                  : json_text(e);
    };
    json.begin_object();
    json.member("count", s.count());
    number("min", finite, exact(s.exact_min()));
    number("max", finite, exact(s.exact_max()));
    number("mean", finite, json_number(s.mean()));
    number("std", s.std().has_value(), json_number(s.std().value_or(0)));
    json.member("zeros", s.zeros());
    json.member("nan", s.nans());
    json.member("inf", s.infinities());
    json.end_object();
    json.key("histogram");
    if (!histogram_) return json.null();
    json.begin_object();
    json.key("edges");
    json.begin_array();
    for (const double edge : histogram_->edges()) json.value(edge);
    json.end_array();
    json.key("counts");
    json.begin_array();
    for (std::size_t i = 0; i < histogram_->bins(); ++i) json.value(histogram_->count(i));
    json.end_array();
    json.end_object();
  }

  SelectedTensor& tensor_;
  const ShowOptions& options_;
  Output& out_;
  Excerpt excerpt_;
  NumberFormat format_;
  bool wants_statistics_;
  Statistics statistics_;
  std::optional<Histogram> histogram_;
  std::vector<Element> corners_;
};

}  // namespace

void show_tensor(const Checkpoint& checkpoint, std::size_t tensor, std::string_view slice,
                 const Selection& selection, const ShowOptions& options, Output& out) {
  SelectedTensor selected(checkpoint, tensor, selection);
  TensorReport report(selected, options, out);
  if (options.json) return report.print_json(selection, slice);
  report.print_text(slice);
}

}  // namespace cairn::cli
