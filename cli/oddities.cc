#include "oddities.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <variant>

#include "cairn/metadata.h"

namespace cairn::cli {
namespace {

void check_files(const std::vector<FileSummary>& files, std::vector<Oddity>& found) {
  for (const FileSummary& file : files)
    if (file.referenced && !file.size)
      found.push_back(
          {"missing_file", file.name, fmt::format("missing; {} bytes of it are needed", file.needed)});
  for (const FileSummary& file : files)
    if (file.referenced && file.size && *file.size < file.needed)
      found.push_back(
          {"short_file", file.name, fmt::format("has {} bytes; {} are needed", *file.size, file.needed)});
}

void check_unreferenced(const std::vector<FileSummary>& files, std::vector<Oddity>& found) {
  for (const FileSummary& file : files)
    if (!file.referenced && file.size)
      found.push_back(
          {"unreferenced_file", file.name, fmt::format("{} bytes that nothing refers to", *file.size)});
}

void check_chunks(const Checkpoint& checkpoint, std::vector<Oddity>& found) {
  const std::vector<TensorSummary>& tensors = checkpoint.tensors();
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    boxes.clear();
    std::size_t lost = 0;
    for (ChunkPlace& chunk : checkpoint.chunks(i)) {
      if (chunk.file.empty() && !chunk.box.empty()) ++lost;
      boxes.push_back(std::move(chunk.box));
    }
    const std::string name(tensors[i].name);
    if (lost > 0)
      found.push_back({"chunk_without_place", name,
                       fmt::format("{} of {} chunks have no place in any file", lost, boxes.size())});
    if (const std::optional<CoverProblem> problem = find_cover_problem(tensors[i].shape, boxes))
      found.push_back({"bad_cover", name, problem->text});
  }
}

void check_planner_data(const Checkpoint& checkpoint, std::vector<Oddity>& found) {
  const Metadata* metadata = checkpoint.metadata();
  if (metadata == nullptr) return;
  if (const Value* foreign = std::get_if<Value>(&metadata->planner_data)) {
    const Opaque* opaque = foreign->get_if<Opaque>();
    found.push_back(
        {"foreign_planner_data", "",
         opaque != nullptr
             ? fmt::format("the planner left a {}, which only its own code understands", opaque->class_name)
             : std::string("the planner left data that are not DCP's paths")});
  }
  if (!metadata->foreign_storage_data.is<None>())
    found.push_back({"foreign_storage_data", "", "the storage data are not DCP's: no chunk can be placed"});
}

}  // namespace

std::vector<Oddity> find_oddities(const Checkpoint& checkpoint, const std::vector<FileSummary>& files) {
  std::vector<Oddity> found;
  check_files(files, found);
  check_chunks(checkpoint, found);
  check_planner_data(checkpoint, found);
  check_unreferenced(files, found);
  return found;
}

}  // namespace cairn::cli
