// DCP's files for planners and storages that are written in Python: one writer, one reader, step by step.

#include <filesystem>
#include <utility>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "cairn/hugging_face.h"
#include "cairn/torch_save.h"
#include "group.h"
#include "metadata.h"
#include "objects.h"
#include "options.h"
#include "plans.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

class Writer {
 public:
  explicit Writer(nb::dict options) {
    SaveOptions save;
    apply(options, save);
    writer_ = dcp_writer(save.files, save.write);
  }
  explicit Writer(std::unique_ptr<StorageWriter> writer) : writer_(std::move(writer)) {}

  void set_up(const WriterRole& role) { writer_->set_up_storage_writer(role); }

  // (WriteResults of torch's, attachment).
  nb::tuple write(nb::list items, nb::handle planner, nb::handle encode) {
    Caller caller;
    HookedItems hooked(std::move(items), planner, encode, caller);
    WrittenData data;
    std::atomic<bool> cancelled = false;
    caller.run([&] { data = writer_->write_data(hooked.plan(), hooked); }, cancelled);
    return nb::make_tuple(hooked.results_of(data), to_bytes(data.attachment));
  }

  // `places`: a pickle of them all, when they are of a kind that the engine does not know. `extra`: {name:
  // pickle} of attributes that are none of DCP's.
  void finish(nb::list entries, nb::object planner_data, nb::list ranks, nb::object places, nb::dict extra) {
    Metadata metadata = make_metadata(std::move(entries), std::move(planner_data));
    if (!places.is_none()) metadata.foreign_storage_data = readable_pickle(bytes_of(places), "the places");
    metadata.version = "1.0.0";
    for (const auto& [name, pickle] : extra)
      metadata.extra.set(to_text(name), readable_pickle(bytes_of(pickle), "the attribute " + to_text(name)));
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
  bool is_published() { return writer_->is_published(); }
  std::vector<std::string> warnings() { return writer_->warnings(); }

 private:
  std::unique_ptr<StorageWriter> writer_;
};

class Reader {
 public:
  explicit Reader(nb::dict options) {
    LoadOptions load;
    apply(options, load);
    reader_ = dcp_reader(load.files, load.read);
  }
  explicit Reader(std::unique_ptr<StorageReader> reader) : reader_(std::move(reader)) {}

  // What every rank has to know, as bytes: one reads it and sends it to all.
  nb::bytes describe() {
    std::string description;
    {
      nb::gil_scoped_release release;
      description = reader_->fetch_description();
    }
    return to_bytes(description);
  }
  std::shared_ptr<Metadata> set_up(nb::bytes description, const ReaderRole& role) {
    std::string bytes(bytes_of(description));
    nb::gil_scoped_release release;
    return known_ = std::make_shared<Metadata>(reader_->set_up_storage_reader(std::move(bytes), role));
  }
  std::shared_ptr<Metadata> metadata(int rank, int world_size) {
    ReaderRole role;
    role.rank = rank;
    role.world_size = world_size;
    return known_ =
               std::make_shared<Metadata>(reader_->set_up_storage_reader(reader_->fetch_description(), role));
  }

  // False, and nothing is read, when the items lie elsewhere than the checkpoint says.
  bool read(nb::list items, nb::handle planner, nb::object places) {
    Caller caller;
    HookedDestinations hooked(std::move(items), planner, known_.get(), caller);
    if (!places.is_none() && (known_ == nullptr || !hooked.lie_at(*known_, places))) return false;
    ReadReport report;
    std::atomic<bool> cancelled = false;
    caller.run([&] { reader_->read_data(hooked.plan(), hooked, report); }, cancelled);
    hooked.finish();
    return true;
  }

  bool was_replaced(bool failed) {
    const Error gone(ErrorCode::kNotFound, "a file is gone");
    return reader_->was_replaced(failed ? &gone : nullptr);
  }

 private:
  std::unique_ptr<StorageReader> reader_;
  std::shared_ptr<Metadata> known_;  // when it is set up
};

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
      .def_prop_ro("has_foreign_places",
                   [](const Metadata& self) { return !self.foreign_storage_data.is<None>(); })
      .def("foreign_planner_data", foreign_planner_data, "file"_a)
      .def(
          "foreign_places",
          [](const Metadata& self, const std::string& file) {
            return object_of_value(self.foreign_storage_data, file);
          },
          "file"_a)
      .def("extra", extra_objects, "file"_a)
      .def_prop_ro("version", [](const Metadata& self) { return self.version; })
      .def_prop_ro(
          "save_id",
          [](const Metadata& self) { return self.storage_meta ? self.storage_meta->save_id : std::nullopt; })
      .def_prop_ro("checkpoint_id", [](const Metadata& self) {
        return self.storage_meta ? self.storage_meta->checkpoint_id : std::nullopt;
      });

  nb::class_<Writer>(m, "Writer")
      .def(nb::init<nb::dict>(), "options"_a)
      .def("set_up", &Writer::set_up, "role"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("write", &Writer::write, "items"_a, "planner"_a, "encode"_a)
      .def("finish", &Writer::finish, "entries"_a, "planner_data"_a.none(), "ranks"_a, "places"_a.none(),
           "extra"_a = nb::dict())
      .def("retire_collective", &Writer::retire_collective, nb::call_guard<nb::gil_scoped_release>())
      .def("abandon", &Writer::abandon, nb::call_guard<nb::gil_scoped_release>())
      .def("is_published", &Writer::is_published, nb::call_guard<nb::gil_scoped_release>())
      .def("warnings", &Writer::warnings);

  nb::class_<Reader>(m, "Reader")
      .def(nb::init<nb::dict>(), "options"_a)
      .def("describe", &Reader::describe)
      .def("set_up", &Reader::set_up, "description"_a, "role"_a)
      .def("metadata", &Reader::metadata, "rank"_a = 0, "world_size"_a = 1,
           nb::call_guard<nb::gil_scoped_release>())
      .def("was_replaced", &Reader::was_replaced, "failed"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("read", &Reader::read, "items"_a, "planner"_a, "places"_a.none() = nb::none());

  m.def(
      "object_of_pickle",
      [](nb::bytes pickle, const std::string& file) { return object_of_pickle(bytes_of(pickle), file); },
      "pickle"_a, "file"_a);
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
