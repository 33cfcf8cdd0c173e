// Where a save writes and what it does to the bytes, when Python says so: file systems and transforms for the
// options of a save or load ("files", "transform").

#include <utility>
#include <vector>

#include "cairn/gc.h"
#include "python_files.h"
#include "transforms.h"

using namespace nb::literals;

namespace cairn::python {

void bind_places(nb::module_& m) {
  nb::class_<Files>(m, "Files")
      .def(
          "__init__",
          [](Files* self, nb::object fs, nb::object path, bool create, bool follow_links) {
            FileSystemOptions options;
            options.create = create;
            options.follow_links = follow_links;
            new (self) Files{files_of(std::move(fs), std::move(path), options)};
          },
          "fs"_a, "path"_a, "create"_a = false, "follow_links"_a = true)
      .def_prop_ro("root", [](const Files& self) { return to_str(self.files->root()); })
      .def_prop_ro(
          "is_exclusive",
          [](const Files& self) {
            const Capabilities can = self.files->capabilities();
            return can.exclusive_create && can.atomic_rename;
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "gc",
          [](const Files& self, bool dry_run, bool force) {
            GcOptions options;
            options.dry_run = dry_run;
            options.force = force;
            std::vector<FileEntry> removed;
            {
              nb::gil_scoped_release release;
              removed = gc(*self.files, options).files;
            }
            nb::list names;
            for (const FileEntry& file : removed) names.append(to_str(file.name));
            return names;
          },
          "dry_run"_a = false, "force"_a = false);

  nb::class_<Transforms>(m, "Transforms")
      .def(
          "__init__",
          [](Transforms* self, nb::object transforms) {
            new (self) Transforms{python_transform(std::move(transforms))};
          },
          "transforms"_a);
}

}  // namespace cairn::python
