// flips KIND COUNT SEED: damages files of a checkpoint, one at a time, and asks verify and a load.
//
// KIND is one of these. In a checkpoint of cairn's verify finds everything, and a load gives the right values
// or fails:
//   metadata, distcp, manifest: one bit flips in a file of that kind, COUNT times.
//   cuts: a file is cut at every length, appended to, zeroed in part, has two blocks exchanged, or is of an
//     older save; COUNT of those.
//   files: files are lost, copied over each other, exchanged; all pairs of them.
//   buffers: a bit flips between the checksum and the disk, or on the way back (see flip_buffers.h).
// In formats of others:
//   torch: one bit flips in a file of torch.save's. A load gives the right values or fails; verify need not
//     find a bit that means nothing.
//   index: one bit flips in the index of a directory of safetensors. What verify passes loads right.
//   safetensors: one bit flips in a file without any checksum. Nothing crashes; the rest is counted.
//
// Prints one JSON object with the counts; exits 1 at the first broken promise.
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>

#include "damage_places.h"
#include "flip_buffers.h"

namespace {

using namespace cairn;

enum class Promise { kFound, kNeverWrong, kRightIfVerified, kNoCrash };

struct Counts {
  std::uint64_t tried = 0, found = 0, loads_right = 0, loads_failed = 0, loads_wrong = 0,
                wrong_and_not_found = 0;
};

class Damages {
 public:
  Damages(DamagePlace& place, Promise promise) : place_(place), promise_(promise) {
    for (const std::string& name : place.files()) good_.emplace(name, place.get(name));
    require(place.verifies() && place.load() == Loaded::kRight, "an undamaged checkpoint is found damaged");
  }

  // `what` says how to find it again. Everything is as it was afterwards.
  void with(const std::map<std::string, std::string>& bad, const std::vector<std::string>& gone,
            const std::string& what) {
    for (const auto& [name, bytes] : bad) place_.put(name, bytes);
    for (const std::string& name : gone) place_.remove(name);
    judge(what);
    for (const auto& [name, bytes] : bad) place_.put(name, good_.at(name));
    for (const std::string& name : gone) place_.put(name, good_.at(name));
  }

  const std::map<std::string, std::string>& good() const { return good_; }
  // At the end: nothing was left changed.
  void print(const std::string& kind) {
    require(place_.verifies(), "the checkpoint is not what it was");
    fmt::print(
        R"({{"kind": "{}", "tried": {}, "found_by_verify": {}, "loads_right": {}, "loads_failed": {}, )"
        R"("loads_wrong": {}, "wrong_and_not_found": {}}})"
        "\n",
        kind, counts_.tried, counts_.found, counts_.loads_right, counts_.loads_failed, counts_.loads_wrong,
        counts_.wrong_and_not_found);
  }

 private:
  void judge(const std::string& what) {
    const bool found = !place_.verifies();
    const Loaded loaded = place_.load();
    ++counts_.tried;
    counts_.found += found ? 1 : 0;
    ++(loaded == Loaded::kRight   ? counts_.loads_right
       : loaded == Loaded::kError ? counts_.loads_failed
                                  : counts_.loads_wrong);
    counts_.wrong_and_not_found += loaded == Loaded::kWrong && !found ? 1 : 0;
    if (promise_ == Promise::kNoCrash) return;
    require(found || loaded != Loaded::kWrong, "verify finds nothing, and what is loaded is wrong: " + what);
    if (promise_ == Promise::kRightIfVerified) return;
    require(loaded != Loaded::kWrong, "a load gives wrong values: " + what);
    require(found || promise_ == Promise::kNeverWrong, "verify finds nothing: " + what);
  }

  DamagePlace& place_;
  const Promise promise_;
  std::map<std::string, std::string> good_;
  Counts counts_;
};

using Chosen = std::function<bool(const std::string& name)>;

void flip_bits(DamagePlace& place, Promise promise, const Chosen& chosen, int count, std::mt19937_64& random,
               const std::string& kind) {
  Damages damages(place, promise);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : damages.good())
    if (chosen(name)) names.push_back(name);
  require(!names.empty(), "there is no such file");
  for (int i = 0; i < count; ++i) {
    const std::string& name = names[static_cast<std::size_t>(i) % names.size()];
    std::string bad = damages.good().at(name);
    const std::uint64_t bit = random() % (8 * bad.size());
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    damages.with({{name, bad}}, {}, fmt::format("{}, bit {}", name, bit));
  }
  damages.print(kind);
}

// Everything that can happen to one file short of losing it. Calls what has changed nothing "".
class Cuts {
 public:
  Cuts(const DcpPlace& older, std::mt19937_64& random) : older_(older), random_(random) {}

  // One of `size() + kOthers` ways: the lengths first.
  std::string damaged(const std::string& name, const std::string& good, std::size_t way) {
    if (way < good.size()) return good.substr(0, way);
    std::string bad = good;
    const std::size_t block = std::min<std::size_t>(4096, std::max<std::size_t>(1, good.size() / 3));
    const std::size_t a = random_() % (good.size() - block + 1), b = random_() % (good.size() - block + 1);
    switch ((way - good.size()) % 4) {
      case 0: bad += std::string(1 + random_() % 5000, static_cast<char>(random_() % 256)); break;
      case 1: std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(a), block, '\0'); break;
      case 2:
        bad.replace(a, block, good, b, block);
        bad.replace(b, block, good, a, block);
        break;
      default: bad = of_older(name); break;
    }
    return bad;
  }

 private:
  // The file of the same kind and rank: its name differs in the id of the save.
  std::string of_older(const std::string& name) const {
    for (const std::string& file : older_.files())
      if (file.substr(0, 5) == name.substr(0, 5)) return older_.get(file);
    return "";
  }

  const DcpPlace& older_;
  std::mt19937_64& random_;
};

constexpr std::size_t kOtherWays = 400;

void cut(int count, std::mt19937_64& random) {
  DcpPlace place(2);
  const DcpPlace older(1);
  Damages damages(place, Promise::kFound);
  Cuts cuts(older, random);
  std::vector<std::pair<std::string, std::size_t>> ways;
  for (const auto& [name, bytes] : damages.good())
    for (std::size_t i = 0; i < bytes.size() + kOtherWays; ++i) ways.emplace_back(name, i);
  if (static_cast<std::size_t>(count) < ways.size()) std::shuffle(ways.begin(), ways.end(), random);
  ways.resize(std::min(ways.size(), static_cast<std::size_t>(count)));
  for (const auto& [name, way] : ways) {
    const std::string& good = damages.good().at(name);
    const std::string bad = cuts.damaged(name, good, way);
    if (bad != good) damages.with({{name, bad}}, {}, fmt::format("{}, way {} of {}", name, way, good.size()));
  }
  damages.print("cuts");
}

void exchange_files() {
  DcpPlace place(1);
  Damages damages(place, Promise::kFound);
  for (const auto& [a, of_a] : damages.good()) {
    damages.with({}, {a}, "without " + a);
    for (const auto& [b, of_b] : damages.good()) {
      if (a == b) continue;
      damages.with({{a, of_b}}, {}, b + " in place of " + a);
      if (a < b) damages.with({{a, of_b}, {b, of_a}}, {}, a + " and " + b + " exchanged");
      if (a < b) damages.with({}, {a, b}, "without " + a + " and " + b);
    }
  }
  damages.print("files");
}

void run(const std::string& kind, int count, std::mt19937_64& random) {
  const auto named = [](std::string_view text) {
    return [text](const std::string& name) { return name.find(text) != name.npos; };
  };
  const std::map<std::string, std::string> of_dcp = {
      {"metadata", ".metadata"}, {"distcp", ".distcp"}, {"manifest", ".cairn-manifest."}};
  if (const auto known = of_dcp.find(kind); known != of_dcp.end()) {
    DcpPlace place(1);
    return flip_bits(place, Promise::kFound, named(known->second), count, random, kind);
  }
  if (kind == "cuts") return cut(count, random);
  if (kind == "files") return exchange_files();
  if (kind == "buffers") return flip_buffers(count, random);
  ConvertOptions options;
  options.durable = false;
  options.verify = false;
  if (kind == "torch") {
    FilePlace place("weights.pt", options);
    return flip_bits(place, Promise::kNeverWrong, named(".pt"), count, random, kind);
  }
  options.skip_objects = true;
  if (kind == "safetensors") {
    FilePlace place("model.safetensors", options);
    return flip_bits(place, Promise::kNoCrash, named(".safetensors"), count, random, kind);
  }
  require(kind == "index", "no such kind: " + kind);
  options.shards = 2;
  FilePlace place("model", options);
  flip_bits(place, Promise::kRightIfVerified, named(".json"), count, random, kind);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return run_trial("flips", fmt::format("{}, seed {}", argv[1], argv[3]), [&] {
    std::mt19937_64 random(std::strtoul(argv[3], nullptr, 10));
    run(argv[1], std::atoi(argv[2]), random);
  });
}
