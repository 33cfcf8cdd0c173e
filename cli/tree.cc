// The listing as a tree: names nested at their dots, with the bytes and counts below each.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "listing.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

constexpr std::uint32_t kNone = ~0U;

struct Node {
  std::string_view path;  // the name up to here; a view into one of the names
  std::uint32_t parent = kNone;
  std::uint32_t first_child = kNone;
  std::uint32_t last_child = kNone;
  std::uint32_t next = kNone;  // the parent's next child
  std::uint32_t children = 0;
  std::uint32_t tensor = kNone;  // what bears exactly this name
  std::uint32_t object = kNone;
  std::uint64_t tensors = 0;  // at and below
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;

  bool is_entry() const { return tensor != kNone || object != kNone; }
};

class Tree {
 public:
  explicit Tree(const Listing& listing) : listing_(listing) {
    nodes_.emplace_back();
    for (const std::uint32_t i : listing.tensors) nodes_[place(listing.tensor(i).name)].tensor = i;
    for (const std::uint32_t i : listing.objects) nodes_[place(listing.object(i).name)].object = i;
    sum();
  }

  // Calls row(node, label, depth) in the order of printing. A branch with a single child and no entry of
  // its own shares that child's line: "model.layers" rather than two lines.
  template <class Row> void each(std::size_t max_depth, Row&& row) const {
    struct Step {
      std::uint32_t node;
      std::size_t depth;
    };
    std::vector<Step> waiting;
    const auto push_children = [&](std::uint32_t node, std::size_t depth) {
      const std::size_t first = waiting.size();
      for (std::uint32_t c = nodes_[node].first_child; c != kNone; c = nodes_[c].next)
        waiting.push_back({c, depth});
      std::reverse(waiting.begin() + static_cast<std::ptrdiff_t>(first), waiting.end());
    };
    push_children(0, 0);
    while (!waiting.empty()) {
      const Step step = waiting.back();
      waiting.pop_back();
      std::uint32_t node = step.node;
      while (nodes_[node].children == 1 && !nodes_[node].is_entry()) node = nodes_[node].first_child;
      row(nodes_[node], label(nodes_[step.node], nodes_[node]), step.depth);
      if (step.depth + 1 < max_depth) push_children(node, step.depth + 1);
    }
  }

 private:
  // The node of a name, made with its ancestors: one for each dot, up to a depth that no state has.
  std::uint32_t place(std::string_view name) {
    constexpr int kMostLevels = 32;
    std::uint32_t at = 0;
    std::size_t begin = 0;
    for (int level = 0;; ++level) {
      const std::size_t dot = level < kMostLevels ? name.find('.', begin) : std::string_view::npos;
      const std::pair step(at, name.substr(begin, dot - begin));
      const auto [found, is_new] = children_.try_emplace(step, static_cast<std::uint32_t>(nodes_.size()));
      if (is_new) append_child(at, name.substr(0, dot));
      at = found->second;
      if (dot == std::string_view::npos) return at;
      begin = dot + 1;
    }
  }

  void append_child(std::uint32_t parent, std::string_view path) {
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
    nodes_[child].path = path;
    nodes_[child].parent = parent;
    Node& above = nodes_[parent];
    (above.first_child == kNone ? above.first_child : nodes_[above.last_child].next) = child;
    above.last_child = child;
    ++above.children;
  }

  void sum() {
    for (std::size_t i = nodes_.size(); i-- > 0;) {  // children come after their parents
      Node& node = nodes_[i];
      if (node.tensor != kNone) {
        ++node.tensors;
        node.bytes = saturating_add(node.bytes, listing_.tensor(node.tensor).bytes);
      }
      if (node.object != kNone) {
        ++node.objects;
        node.bytes = saturating_add(node.bytes, listing_.object(node.object).bytes);
      }
      if (node.parent == kNone) continue;
      Node& parent = nodes_[node.parent];
      parent.tensors += node.tensors;
      parent.objects += node.objects;
      parent.bytes = saturating_add(parent.bytes, node.bytes);
    }
  }

  // The part of the path that this line adds to the line above it.
  std::string_view label(const Node& first, const Node& last) const {
    const std::size_t above = first.parent == 0 ? 0 : nodes_[first.parent].path.size() + 1;
    return last.path.substr(above);
  }

  const Listing& listing_;
  std::vector<Node> nodes_;
  std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> children_;  // by parent and step
};

std::string describe(const Listing& listing, const Node& node) {
  std::string text;
  if (node.tensor != kNone) {
    const TensorSummary& tensor = listing.tensor(node.tensor);
    text = std::string(name_of(tensor.dtype)) + " " + to_string(tensor.shape);
  } else if (node.object != kNone) {
    text = "object";
  }
  if (node.children == 0) return text;
  std::string below;
  if (node.tensors > 0) below = counted(node.tensors, "tensor");
  if (node.objects > 0) below += (below.empty() ? "" : ", ") + counted(node.objects, "object");
  return text.empty() ? below : text + " and below: " + below + " in all";
}

std::size_t indent(std::size_t depth) { return 2 * std::min<std::size_t>(depth, 40); }

}  // namespace

void print_tree(const Listing& listing, std::size_t max_depth, Output& out) {
  constexpr std::size_t kLongest = 80;
  const Tree tree(listing);
  std::size_t width = 4;
  tree.each(max_depth, [&](const Node&, std::string_view label, std::size_t depth) {
    const std::size_t own = is_plain(label) ? label.size() : width_of(visible(label));
    width = std::max(width, std::min(indent(depth) + own, kLongest));
  });
  tree.each(max_depth, [&](const Node& node, std::string_view label, std::size_t depth) {
    const std::string shown = visible(label);
    const std::size_t used = indent(depth) + width_of(shown);
    const ShortText bytes = human_bytes(node.bytes);
    out.repeat(' ', indent(depth));
    if (node.children > 0) out.style(Output::Style::kBold);
    out.text(shown);
    if (node.children > 0) out.style(Output::Style::kPlain);
    out.repeat(' ', (used < width ? width - used : 0) + 2 + (10 - std::min<std::size_t>(10, bytes.size)));
    out.text(bytes.view());
    out.text("  ");
    out.text(describe(listing, node));
    out.put('\n');
  });
}

}  // namespace cairn::cli
