// DCP's files for planners and storages that are written in Python: one writer, one reader, step by step.

#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "cairn/dcp_metadata.h"
#include "cairn/dequantize.h"
#include "cairn/error.h"
#include "cairn/hugging_face.h"
#include "cairn/torch_save.h"
#include "group.h"
#include "metadata.h"
#include "options.h"
#include "state.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

SaveId to_save_id(std::string_view hex) {
  if (hex.size() != 2 * SaveId().size()) throw Error(ErrorCode::kInvalidArgument, "a save id has 32 digits");
  SaveId id;
  for (std::size_t i = 0; i < id.size(); ++i)
    id[i] = static_cast<std::byte>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  return id;
}

// Asks Python for the data of the items of a finished plan; makes no plans.
class ItemPlanner final : public SavePlanner {
 public:
  explicit ItemPlanner(nb::handle resolve) : resolve_(resolve) {}

  void set_up_planner(const StateDict&, const StorageMeta*, bool) override {}
  SavePlan create_local_plan() override { return {}; }
  GlobalSavePlan create_global_plan(std::vector<SavePlan>) override { return {}; }
  SavePlan finish_plan(SavePlan central) override { return central; }

  std::optional<std::string> resolve_archive(const WriteItem& item) override {
    return with_python([&]() -> std::optional<std::string> {
      nb::object made = resolve_(item.index.index.value());
      if (PyBytes_Check(made.ptr())) return std::string(bytes_of(made));
      const Tensor tensor = plain_tensor(made).value();
      made_ = Tensor(tensor.view(), owner_of(std::move(made)));
      return std::nullopt;
    });
  }
  Value resolve_data(const WriteItem&) override { return std::move(*std::exchange(made_, std::nullopt)); }

 private:
  nb::handle resolve_;                              // (position) -> bytes or a plain tensor
  static thread_local std::optional<Tensor> made_;  // for the item at hand, by the thread that writes it
};

thread_local std::optional<Tensor> ItemPlanner::made_;

class Writer {
 public:
  Writer(const std::filesystem::path& path, nb::dict options) {
    WriteOptions write;
    apply(options, write);
    writer_ = dcp_writer(file_system_of(path.string(), {.create = true}), write);
  }
  explicit Writer(std::unique_ptr<StorageWriter> writer) : writer_(std::move(writer)) {}

  void set_up(const std::string& save_id, int rank, int world_size, bool is_coordinator, bool collective) {
    WriterRole role;
    role.rank = rank;
    role.world_size = world_size;
    role.is_coordinator = is_coordinator;
    role.collective = collective;
    role.save_id = to_save_id(save_id);
    writer_->set_up_storage_writer(role);
  }

  // (places, attachment): a place for each item, its position in the plan as the hint.
  nb::tuple write(nb::list items, nb::handle resolve) {
    SavePlan plan;
    plan.items = to_items(std::move(items));
    ItemPlanner planner(resolve);
    WrittenData data;
    std::atomic<bool> cancelled = false;
    run_interruptibly([&] { data = writer_->write_data(plan, planner); }, cancelled);
    nb::list places;
    for (const WriteResult& result : data.results) places.append(to_row(result));
    return nb::make_tuple(places, to_bytes(data.attachment));
  }

  // `extra`: {name: pickle} of attributes that are none of DCP's.
  void finish(nb::list entries, nb::object planner_data, nb::list ranks, nb::dict extra) {
    Metadata metadata = make_metadata(std::move(entries), std::move(planner_data));
    metadata.version = "1.0.0";
    for (const auto& [name, pickle] : extra)
      metadata.extra.set(to_text(name), Value(Opaque{"", std::string(bytes_of(pickle))}));
    std::vector<WrittenData> all;
    for (nb::handle rank : ranks) {
      WrittenData data;
      for (nb::handle place : rank[0]) data.results.push_back(to_result(place));
      data.attachment = bytes_of(nb::object(rank[1]));
      all.push_back(std::move(data));
    }
    nb::gil_scoped_release release;
    writer_->finish(metadata, std::move(all));
  }

  void retire_collective() { writer_->retire_collective(); }
  void abandon() { writer_->abandon(); }

 private:
  std::unique_ptr<StorageWriter> writer_;
};

// Asks Python where the items of a finished plan go.
class ItemDestinations final : public LoadPlanner {
 public:
  ItemDestinations(nb::handle resolve, nb::handle commit) : resolve_(resolve), commit_(commit) {}

  void set_up_planner(StateDict&, const Metadata*, bool) override {}
  LoadPlan create_local_plan() override { return {}; }
  std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override { return all; }
  LoadPlan finish_plan(LoadPlan central) override { return central; }
  void load_bytes(const ReadItem&, Value) override {}
  std::string* resolve_bytes(const ReadItem& item) override {
    const std::lock_guard lock(mutex_);
    return &archives_[item.dest_index.index.value()];
  }
  TensorView resolve_tensor(const ReadItem& item) override {
    return with_python([&] { return plain_tensor(resolve_(item.dest_index.index.value())).value().view(); });
  }
  void commit_tensor(const ReadItem& item, const TensorView&) override {
    with_python([&] { commit_(item.dest_index.index.value()); });
  }

  nb::dict archives() const {
    nb::dict found;
    for (const auto& [position, archive] : archives_) found[nb::int_(position)] = to_bytes(archive);
    return found;
  }

 private:
  nb::handle resolve_;  // (position) -> plain tensor, kept alive by Python until commit
  nb::handle commit_;
  std::mutex mutex_;
  std::unordered_map<std::int64_t, std::string> archives_;
};

class Reader {
 public:
  Reader(const std::filesystem::path& path, bool follow_links)
      : reader_(dcp_reader(file_system_of(path.string(), {.follow_links = follow_links}))) {}
  explicit Reader(std::unique_ptr<StorageReader> reader) : reader_(std::move(reader)) {}

  std::shared_ptr<Metadata> metadata(int rank, int world_size) {
    ReaderRole role;
    role.rank = rank;
    role.world_size = world_size;
    const Metadata& found = reader_->set_up_storage_reader(reader_->fetch_description(), role);
    return std::make_shared<Metadata>(found);
  }

  // {position: archive} of the objects; the tensors are filled.
  nb::dict read(nb::list items, nb::handle resolve, nb::handle commit) {
    LoadPlan plan;
    for (nb::handle row : items) plan.items.push_back(to_read_item(row, plan.items.size()));
    ItemDestinations destinations(resolve, commit);
    ReadReport report;
    std::atomic<bool> cancelled = false;
    run_interruptibly([&] { reader_->read_data(plan, destinations, report); }, cancelled);
    return destinations.archives();
  }

 private:
  std::unique_ptr<StorageReader> reader_;
};

TensorView view_of(nb::handle tensor) {
  const std::optional<Tensor> found = plain_tensor(tensor);
  if (!found) throw Error(ErrorCode::kInvalidArgument, "a plain tensor is needed here");
  return found->view();
}

// `to` is filled. Tensors are matrices with dense rows.
void dequantize_blocks_of(nb::object elements, std::int64_t row, std::int64_t column, std::int64_t block,
                          nb::object scales, nb::object to) {
  const TensorView from = view_of(elements), by = view_of(scales), made = view_of(to);
  nb::gil_scoped_release release;
  dequantize_blocks(from, row, column, block, by, made);
}

void dequantize_mxfp4_of(nb::object codes, nb::object scales, std::int64_t first, nb::object to) {
  const TensorView from = view_of(codes), by = view_of(scales), made = view_of(to);
  nb::gil_scoped_release release;
  dequantize_mxfp4(from, by, first, made);
}

// Of bytes that Python read, from wherever; `name` stands for them in errors.
std::shared_ptr<Metadata> parse_metadata(nb::bytes bytes, std::string name) {
  const std::string_view text = bytes_of(bytes);
  nb::gil_scoped_release release;
  return std::make_shared<Metadata>(parse_dcp_metadata(text, std::move(name)));
}

// `file_of` is {fqn: number of its file}; `options` are those of a Writer.
std::unique_ptr<Writer> make_hf_writer(const std::filesystem::path& path, nb::dict file_of, bool sharded,
                                       nb::dict options) {
  HfWriteOptions write;
  apply(std::move(options), write.write);
  write.sharded = sharded;
  for (const auto& [fqn, index] : file_of) write.file_of[to_text(fqn)] = nb::cast<int>(index);
  return std::make_unique<Writer>(hf_writer(file_system_of(path.string(), {.create = true}), write));
}

void consolidate_shards(const std::filesystem::path& source, const std::filesystem::path& to,
                        nb::dict file_of, int threads, std::optional<PythonGroup*> group, double seconds) {
  ConsolidateOptions options;
  for (const auto& [fqn, index] : file_of) options.file_of[to_text(fqn)] = nb::cast<int>(index);
  options.threads = threads;
  if (group) options.group = *group;
  options.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  std::atomic<bool> cancelled = false;
  run_interruptibly(
      [&] {
        const auto turn = turn_of(group.value_or(nullptr));
        consolidate(source.string(), to.string(), options);
      },
      cancelled);
}

// With `dequantize_to`, the name of an element type, quantised tensors are read as such.
std::unique_ptr<Reader> make_hf_reader(const std::filesystem::path& path, nb::object dequantize_to,
                                       std::int64_t block) {
  HfReadOptions read;
  if (!dequantize_to.is_none()) read.dequantize = Dequantize{to_dtype(dequantize_to), block};
  return std::make_unique<Reader>(hf_reader(file_system_of(path.string(), {.follow_links = true}), read));
}

}  // namespace

void bind_storage(nb::module_& m) {
  nb::class_<Metadata>(m, "Metadata")
      .def("entries", entry_rows)
      .def("places", place_rows)
      .def("paths", paths)
      .def_prop_ro("has_extra", [](const Metadata& self) { return !self.extra.empty(); })
      .def_prop_ro("has_foreign_places",
                   [](const Metadata& self) { return !self.foreign_storage_data.is<None>(); })
      .def_prop_ro("version", [](const Metadata& self) { return self.version; })
      .def_prop_ro(
          "save_id",
          [](const Metadata& self) { return self.storage_meta ? self.storage_meta->save_id : std::nullopt; })
      .def_prop_ro("checkpoint_id", [](const Metadata& self) {
        return self.storage_meta ? self.storage_meta->checkpoint_id : std::nullopt;
      });

  nb::class_<Writer>(m, "Writer")
      .def(nb::init<const std::filesystem::path&, nb::dict>(), "path"_a, "options"_a)
      .def("set_up", &Writer::set_up, "save_id"_a, "rank"_a, "world_size"_a, "is_coordinator"_a,
           "collective"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("write", &Writer::write, "items"_a, "resolve"_a)
      .def("finish", &Writer::finish, "entries"_a, "planner_data"_a.none(), "ranks"_a, "extra"_a = nb::dict())
      .def("retire_collective", &Writer::retire_collective, nb::call_guard<nb::gil_scoped_release>())
      .def("abandon", &Writer::abandon, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<Reader>(m, "Reader")
      .def(nb::init<const std::filesystem::path&, bool>(), "path"_a, "follow_links"_a = true)
      .def("metadata", &Reader::metadata, "rank"_a = 0, "world_size"_a = 1,
           nb::call_guard<nb::gil_scoped_release>())
      .def("read", &Reader::read, "items"_a, "resolve"_a, "commit"_a);

  m.def("parse_metadata", parse_metadata, "bytes"_a, "name"_a);
  m.def("dequantize_blocks", dequantize_blocks_of, "elements"_a, "row"_a, "column"_a, "block"_a, "scales"_a,
        "to"_a);
  m.def("dequantize_mxfp4", dequantize_mxfp4_of, "codes"_a, "scales"_a, "first"_a, "to"_a);
  m.def("consolidate", consolidate_shards, "source"_a, "to"_a, "file_of"_a, "threads"_a,
        "group"_a.none() = nb::none(), "seconds"_a = 1800.0);
  m.def(
      "torch_save_reader",
      [](const std::filesystem::path& path) {
        return std::make_unique<Reader>(torch_save_reader(path.string()));
      },
      "path"_a);
  m.def("hf_writer", make_hf_writer, "path"_a, "file_of"_a, "sharded"_a, "options"_a);
  m.def("hf_reader", make_hf_reader, "path"_a, "dequantize_to"_a.none() = nb::none(), "block"_a = 128);
}

}  // namespace cairn::python
