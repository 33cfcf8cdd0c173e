// cairn ls: what a checkpoint holds.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "cairn/checkpoint.h"
#include "command.h"
#include "listing.h"
#include "output.h"

namespace cairn::cli {
namespace {

class Ls : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PATH", path_, "A checkpoint: a directory, a .pt or a .safetensors file")->required();
    app.add_option("GLOB", glob_, "Only names that match: * is any text, dots too, ? one character");
    CLI::Option* tree = app.add_flag("--tree", tree_, "Nest the names at their dots, with sums");
    app.add_option("--depth", depth_, "How many levels of the tree to print")
        ->check(CLI::PositiveNumber)
        ->needs(tree);
    app.add_option("--sort", order_, "size (largest first) or name (layers.2 before layers.10)")
        ->check(CLI::IsMember({"size", "name"}));
    CLI::Option* chunks = app.add_flag("--long", long_, "Each chunk: its box, file, offset and length");
    CLI::Option* json = app.add_flag("--json", json_, "Print one JSON document");
    json->excludes(tree);
    tree->excludes(chunks);
  }

  void run(Output& out) override {
    checkpoint_ = Checkpoint::open(path_);
    const Order order = order_ == "size" ? Order::kSize : order_ == "name" ? Order::kName : Order::kStored;
    const Listing listing = make_listing(*checkpoint_, glob_, order);
    if (json_) return print_json(listing, out);
    if (tree_) {
      print_tree(listing, depth_, out);
    } else {
      print_table(listing, {.chunks = long_}, out);
    }
    print_totals(listing, out);
  }

 private:
  std::string path_;
  std::string glob_;
  std::string order_;
  std::size_t depth_ = std::numeric_limits<std::size_t>::max();
  bool tree_ = false;
  bool long_ = false;
  bool json_ = false;
  std::unique_ptr<Checkpoint> checkpoint_;  // until the process ends
};

}  // namespace

std::unique_ptr<Command> make_ls() { return std::make_unique<Ls>(); }

}  // namespace cairn::cli
