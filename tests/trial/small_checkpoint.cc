#include "small_checkpoint.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"
#include "base/sink.h"
#include "base/source.h"
#include "cairn/hugging_face.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "trainer_version.h"

namespace cairn::trial {
namespace {

// Little memory, so that threads and buffers cost little.
WriteOptions write_options(const Cut& cut) {
  WriteOptions options;
  options.files_per_rank = cut.files_per_rank;
  options.strong_hashes = cut.strong_hashes;
  options.checksums = cut.checksums;
  options.memory_budget = 2U << 20;
  return options;
}

ReadOptions read_options() {
  ReadOptions options;
  options.verify = Verify::kFull;
  options.threads = 1;
  return options;
}

}  // namespace

void save_version(const std::string& directory, int version, const Cut& cut,
                  const std::function<void()>& done) {
  run_ranks(cut.ranks, [&](Group& group) {
    SaveOptions options;
    options.group = &group;
    options.write = write_options(cut);
    save(trainer_state(group.rank(), cut.ranks, version), directory, options);
    if (done) done();
  });
}

void save_version(const std::shared_ptr<FileSystem>& files, int version, const Cut& cut) {
  run_ranks(cut.ranks, [&](Group& group) {
    const auto writer = dcp_writer(files, write_options(cut));
    SaveOptions options;
    options.group = &group;
    options.writer = writer.get();
    save(trainer_state(group.rank(), cut.ranks, version), "memory", options);
  });
}

void save_hugging_face(const std::string& directory, int version, int files) {
  StateDict state = trainer_state(0, 1, version);
  StateDict tensors;
  tensors.set("model", *state.find("model"));
  tensors.set("optim", *state.find("optim"));
  HfWriteOptions options;
  options.write = write_options({});
  for (const char* name : {"model.w", "model.b", "model.empty", "model.scalar", "optim.exp_avg"})
    options.file_of[name] = 1 + static_cast<int>(options.file_of.size()) % files;
  const auto writer = hf_writer(posix_file_system(directory, {.create = true}), options);
  save(tensors, directory, {.writer = writer.get()});
}

void make_stock(FileSystem& files) {
  Metadata metadata = read_dcp_metadata(*files.open(kMetadataName));
  StorageData places;
  for (std::size_t i = 0; i < metadata.storage_data.size(); ++i) {
    StorageInfo place = metadata.storage_data.info(i);
    place.relative_path.erase(place.relative_path.find('.'),
                              place.relative_path.rfind('.') - place.relative_path.find('.'));
    places.add(metadata.storage_data.index(i), place);
  }
  for (const std::string& name : metadata.storage_data.files())
    files.rename(name, name.substr(0, name.find('.')) + ".distcp");
  for (const FileEntry& entry : files.list())
    if (entry.name.find("manifest") != entry.name.npos) files.remove(entry.name);
  metadata.storage_data = std::move(places);
  metadata.storage_meta->save_id = "0c7fa3a2-94a1-4bd7-8d2f-3f5f4b6d9a10";
  metadata.storage_meta->extra = {};
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  const auto file = files.create(kMetadataName, {.replace = true});
  file->write_at(0, as_bytes(sink.text));
  file->commit();
}

std::optional<int> version_in(const std::shared_ptr<const FileSystem>& files) {
  if (!files->stat(kMetadataName)) return std::nullopt;
  const auto reader = dcp_reader(files, read_options());
  return trainer_version(load_into_new("memory", std::nullopt, {.reader = reader.get()}));
}

std::optional<int> version_in(const std::string& directory) {
  return version_in(std::shared_ptr<const FileSystem>(posix_file_system(directory)));
}

void check_clean(const FileSystem& files, const Cut& cut) {
  int data = 0, manifests = 0;
  for (const FileEntry& entry : files.list()) {
    const auto name = parse_dcp_name(entry.name);
    require(name && !is_partial(entry.name), "a file of a dead save is left: " + entry.name);
    data += name->kind == DcpName::Kind::kData ? 1 : 0;
    manifests += name->kind == DcpName::Kind::kManifest ? 1 : 0;
  }
  require(data == cut.data_files() && manifests == (cut.checksums ? 1 : 0),
          fmt::format("{} data files and {} manifests are there", data, manifests));
}

}  // namespace cairn::trial
