// Bits that flip in memory, between the checksum and the disk and on the way back.
#pragma once

#include <random>

#include "cairn/async.h"
#include "convert/convert_entries.h"
#include "convert/convert_layout.h"
#include "convert/convert_write.h"
#include "damage_places.h"
#include "flipping.h"

namespace cairn {

// Counts of flips that happened, and what found them.
struct BufferCounts {
  std::uint64_t write = 0, write_found = 0;
  std::uint64_t read = 0, read_found = 0, read_harmless = 0;
  std::uint64_t converted = 0, converted_found = 0, converted_harmless = 0;
  std::uint64_t staged = 0, staged_found = 0;
};

inline constexpr std::uint64_t kConvertCalls = 2;  // a small file is written with one or two

class BufferFlips {
 public:
  explicit BufferFlips(std::mt19937_64& random) : random_(random) {
    save_to(*files_);
    right_ = load_from(files_);
  }

  // In what a save writes: verify must find it, in data, manifest and metadata alike.
  void write() {
    std::shared_ptr<FileSystem> files = flipping(Flip::Where::kWrite, calls_of_a_save());
    const bool refused = throws_error([&] { save_to(*files); });
    if (!flip_.flipped) return;
    flip_.where = Flip::Where::kNowhere;
    bool fine = false;
    const bool unreadable = refused || throws_error([&] { fine = verify(*files).ok(); });
    ++counts_.write;
    counts_.write_found += unreadable || !fine ? 1 : 0;
    require(unreadable || !fine, "a bit flipped while it was written, and verify does not find it");
    StateDict state;
    require(refused || throws_error([&] { state = load_from(files); }) || state == right_,
            "a bit flipped while it was written, and a load gives wrong values");
  }

  // In what a load reads: it fails, or the bit meant nothing.
  void read() {
    flip_.arm(Flip::Where::kRead, random_() % calls_of_a_load(), random_());
    StateDict state;
    const bool failed = throws_error([&] { state = load_from(files_); });
    const bool flipped = flip_.flipped;
    flip_.where = Flip::Where::kNowhere;
    if (!flipped) return;
    ++counts_.read;
    ++(failed ? counts_.read_found : counts_.read_harmless);
    require(failed || state == right_, "a bit flipped while it was read, and the load gives wrong values");
  }

  // In what a conversion writes: it reads everything back.
  void convert() {
    ConvertOptions options;
    options.threads = 1;
    const CheckpointSource source(scratch_ / "source", {.spill_directory = scratch_.path()});
    const std::vector<ConvertEntry> entries = choose_entries(source, options);
    OutputLayout layout = lay_out_torch(entries, source, "made.pt");
    if (converted_.empty()) {
      flip_.where = Flip::Where::kNowhere;
      OutputLayout same = layout;
      const auto clean = memory_file_system();
      write_files(*clean, same, entries, source, options);
      converted_ = read_all(*clean->open("made.pt"));
    }
    const std::shared_ptr<FileSystem> files = flipping(Flip::Where::kWrite, kConvertCalls);
    const bool failed = throws_error([&] { write_files(*files, layout, entries, source, options); });
    if (!flip_.flipped) return;
    ++counts_.converted;
    ++(failed ? counts_.converted_found : counts_.converted_harmless);
    // Headers are written twice: what flips the first time is written over.
    require(failed ? files->list().empty() : read_all(*files->open("made.pt")) == converted_,
            "a bit flipped while a conversion wrote it, and reading back does not find it");
  }

  // In a snapshot, before the save sums it: nobody knows what it was. Counted, not promised.
  void stage() {
    std::shared_ptr<FileSystem> files = memory_file_system();
    const std::unique_ptr<Stager> stager = default_stager();
    Snapshot snapshot = stager->stage(trainer_state(0, 1, 1), {});
    const Value* weights = snapshot.state.find("model")->get<Dict>().find("b");
    Tensor same = weights->get<Tensor>();
    same.bytes()[random_() % same.bytes().size()] ^= std::byte{1};
    const auto writer = dcp_writer(files);
    save(snapshot.state, "memory", {.writer = writer.get()});
    ++counts_.staged;
    counts_.staged_found += verify(*files).ok() ? 0 : 1;
  }

  void prepare_conversions() {
    save(trainer_state(0, 1, 1), scratch_ / "source", {.write = {.durable = false}});
  }
  const BufferCounts& counts() const { return counts_; }

 private:
  std::shared_ptr<FileSystem> flipping(Flip::Where where, std::uint64_t calls) {
    flip_.arm(where, random_() % calls, random_());
    return std::make_shared<FlippingFileSystem>(memory_file_system(), flip_);
  }
  // Large enough that some writes do not go through a buffer.
  static StateDict state() {
    StateDict state = trainer_state(0, 1, 1);
    state.set("large", Value(numbered({300000}, 5)));
    return state;
  }
  static void save_to(FileSystem& files) {
    const auto writer = dcp_writer({std::shared_ptr<void>(), &files}, {.files_per_rank = 2});
    save(state(), "memory", {.writer = writer.get()});
  }
  static StateDict load_from(const std::shared_ptr<FileSystem>& files) {
    const auto reader = dcp_reader(files, {.verify = Verify::kFull, .threads = 1});
    return load_into_new("memory", std::nullopt, {.reader = reader.get()});
  }
  // Counted once, by an arm() that never fires.
  std::uint64_t calls_of_a_save() {
    if (save_calls_ == 0) {
      flip_.arm(Flip::Where::kWrite, ~std::uint64_t{0}, 0);
      FlippingFileSystem files(memory_file_system(), flip_);
      save_to(files);
      save_calls_ = flip_.calls;
    }
    return save_calls_;
  }
  std::uint64_t calls_of_a_load() {
    if (load_calls_ == 0) {
      flip_.arm(Flip::Where::kRead, ~std::uint64_t{0}, 0);
      load_from(files_);
      load_calls_ = flip_.calls;
    }
    return load_calls_;
  }

  std::mt19937_64& random_;
  Flip flip_;
  TestFolder scratch_{place_in_memory()};
  std::shared_ptr<FileSystem> files_ = std::make_shared<FlippingFileSystem>(memory_file_system(), flip_);
  StateDict right_;
  std::string converted_;  // what a conversion writes
  std::uint64_t save_calls_ = 0, load_calls_ = 0;
  BufferCounts counts_;
};

inline void flip_buffers(int count, std::mt19937_64& random) {
  BufferFlips flips(random);
  flips.prepare_conversions();
  for (int i = 0; i < count; ++i) {
    flips.write();
    flips.read();
    flips.convert();
    if (i % 10 == 0) flips.stage();
  }
  const BufferCounts& counts = flips.counts();
  require(10 * counts.write > 8 * static_cast<std::uint64_t>(count) &&
              10 * counts.read > 8 * static_cast<std::uint64_t>(count),
          "too few of the flips happened");
  fmt::print(R"({{"kind": "buffers", "written": [{}, {}], "read": [{}, {}, {}], "converted": [{}, {}, {}], )"
             R"("staged_before_the_checksum": [{}, {}]}})"
             "\n",
             counts.write, counts.write_found, counts.read, counts.read_found, counts.read_harmless,
             counts.converted, counts.converted_found, counts.converted_harmless, counts.staged,
             counts.staged_found);
}

}  // namespace cairn
