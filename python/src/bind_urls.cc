// Single files at URLs, for what torch's classes ask of a file system (python/cairn/_url_files.py).

#include <algorithm>
#include <span>
#include <vector>

#include "cairn/error.h"
#include "cairn/storage.h"
#include "cairn/version.h"
#include "python.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

bool has_object_stores() {
  const auto known = features();
  return std::any_of(known.begin(), known.end(),
                     [](const Feature& each) { return each.name == "s3" && each.available; });
}

std::unique_ptr<FileSystem> folder_of(const UrlParts& parts) {
  return file_system_of(parts.folder, {.create = true});
}

nb::bytes read_file_at(const std::string& url) {
  std::string bytes;
  {
    nb::gil_scoped_release release;
    const UrlParts parts = split_url(url);
    const auto file = file_system_of(parts.folder)->open(parts.name);
    bytes.resize(file->size());
    file->read_at(0, std::as_writable_bytes(std::span(bytes)));
  }
  return to_bytes(bytes);
}

void write_file_at(const std::string& url, nb::bytes bytes, bool replace) {
  const std::string_view held = bytes_of(bytes);
  nb::gil_scoped_release release;
  const UrlParts parts = split_url(url);
  const auto file = folder_of(parts)->create(parts.name, {.size = held.size(), .replace = replace});
  file->write_at(0, std::as_bytes(std::span(held)));
  file->commit();
}

}  // namespace

void bind_urls(nb::module_& m) {
  const nb::call_guard<nb::gil_scoped_release> alone;
  m.def("has_object_stores", has_object_stores);
  m.def("read_file", read_file_at, "url"_a);
  m.def("write_file", write_file_at, "url"_a, "bytes"_a, "replace"_a = true);
  m.def(
      "file_exists", [](const std::string& url) { return find_place(url).is_file(); }, "url"_a, alone);
  m.def(
      "remove_file",
      [](const std::string& url) {
        const UrlParts parts = split_url(url);
        folder_of(parts)->remove(parts.name);
      },
      "url"_a, alone);
  m.def(
      "rename_file",
      [](const std::string& url, const std::string& to) {
        const UrlParts parts = split_url(url), new_parts = split_url(to);
        if (parts.folder != new_parts.folder)
          throw Error(ErrorCode::kUnsupported, "a file is renamed within its folder").in_file(url);
        folder_of(parts)->rename(parts.name, new_parts.name);
      },
      "url"_a, "to"_a, alone);
  m.def(
      "list_folder",
      [](const std::string& url) {
        std::vector<std::string> names;
        for (const FileEntry& file : file_system_of(url, {.create = true})->list())
          names.push_back(file.name);
        return names;
      },
      "url"_a, alone);
}

}  // namespace cairn::python
