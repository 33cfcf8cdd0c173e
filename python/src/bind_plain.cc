// Saving and loading without torch: nested dicts and lists of numpy arrays and plain values; verify and gc.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/error.h"
#include "cairn/gc.h"
#include "cairn/verify.h"
#include "options.h"
#include "values.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

using Keys = std::optional<std::vector<std::string>>;

// Runs a save or load of this process alone, where "rank 0 failed" says nothing: the failure itself is
// thrown.
void run_alone(const std::function<void()>& work, std::atomic<bool>& cancelled) {
  try {
    run_interruptibly(work, cancelled);
  } catch (const CheckpointError& e) {
    if (e.failures().size() != 1) throw;
    throw Error(e.failures().begin()->second);
  }
}

nb::dict save_plain(const nb::dict& state, const std::filesystem::path& path, nb::handle describe,
                    nb::dict options) {
  std::atomic<bool> cancelled = false;
  SaveOptions save_options;
  apply(std::move(options), save_options);
  save_options.cancelled = &cancelled;
  nb::list kept;
  const StateDict values = to_state(state, describe, kept);
  SaveResult result;
  run_alone([&] { result = save(values, path.string(), save_options); }, cancelled);
  log_warnings(result.warnings);
  nb::dict report;
  report["save_id"] = to_str(to_string(result.save_id));
  report["bytes"] = result.bytes;
  report["warnings"] = nb::cast(result.warnings);
  return report;
}

nb::dict to_python(const ReadReport& read) {
  nb::dict report;
  report["needed"] = read.needed;
  report["read"] = read.read;
  report["verified"] = read.verified;
  report["unverified"] = read.unverified;
  report["restarts"] = read.restarts;
  return report;
}

nb::dict load_plain(const nb::dict& state, const std::filesystem::path& path, nb::handle describe,
                    nb::dict options) {
  std::atomic<bool> cancelled = false;  // a load is not cancelled; the signal waits for its end
  LoadOptions load_options;
  apply(std::move(options), load_options);
  nb::list kept;
  StateDict values = to_state(state, describe, kept);
  LoadResult result;
  run_alone([&] { result = load(values, path.string(), load_options); }, cancelled);
  log_warnings(result.warnings);
  give_back(values, state);
  return to_python(result.read);
}

nb::object load_plain_new(const std::filesystem::path& path, const Keys& keys, nb::handle of_tensor,
                          nb::dict options) {
  std::atomic<bool> cancelled = false;
  LoadOptions load_options;
  apply(std::move(options), load_options);
  StateDict values;
  run_alone([&] { values = load_into_new(path.string(), keys, load_options); }, cancelled);
  return to_object(values, {}, of_tensor);
}

nb::list to_rows(const std::vector<FileEntry>& files) {
  nb::list rows;
  for (const FileEntry& file : files) {
    nb::dict row;
    row["file"] = to_str(file.name);
    row["bytes"] = file.size;
    rows.append(row);
  }
  return rows;
}

nb::object text_or_none(const std::string& text) {
  return text.empty() ? nb::object(nb::none()) : to_str(text);
}

nb::dict to_python(const Problem& problem) {
  nb::dict row;
  row["kind"] = to_str(name_of(problem.kind));
  row["file"] = text_or_none(problem.file);
  row["tensor"] = text_or_none(problem.tensor);
  row["offset"] = problem.offset ? nb::object(nb::int_(*problem.offset)) : nb::none();
  row["text"] = to_str(problem.text);
  return row;
}

// As `cairn verify --json` has it.
nb::dict to_python(const VerifyReport& found) {
  nb::dict report;
  report["ok"] = found.ok();
  report["format"] = to_str(name_of(found.format));
  report["files"] = found.files;
  report["tensors"] = found.tensors;
  report["objects"] = found.objects;
  report["items"] = found.items;
  report["bytes_checked"] = found.bytes_checked;
  nb::list unchecked;
  for (const Unchecked& part : found.unchecked) {
    nb::dict row;
    row["why"] = to_str(part.why);
    row["bytes"] = part.bytes;
    unchecked.append(row);
  }
  report["unchecked"] = unchecked;
  report["debris"] = to_rows(found.debris);
  nb::list problems;
  for (const Problem& problem : found.problems) problems.append(to_python(problem));
  report["problems"] = problems;
  report["problems_left_out"] = found.problems_left_out;
  return report;
}

nb::dict verify_now(const std::filesystem::path& path, int threads, nb::handle progress) {
  std::atomic<bool> cancelled = false;
  VerifyOptions options;
  options.threads = threads;
  options.progress = [&cancelled, told = to_progress(progress)](const Progress& now) {
    if (cancelled) throw Error(ErrorCode::kCancelled, "verify was stopped");
    if (told) told(now);
  };
  VerifyReport found;
  run_interruptibly([&] { found = verify(path.string(), options); }, cancelled);
  return to_python(found);
}

nb::dict gc_now(const std::filesystem::path& path, bool dry_run, bool force) {
  GcOptions options;
  options.dry_run = dry_run;
  options.force = force;
  GcReport removed;
  {
    nb::gil_scoped_release release;
    removed = gc(path.string(), options);
  }
  nb::dict report;
  report["dry_run"] = dry_run;
  report["bytes"] = removed.bytes;
  report["files"] = to_rows(removed.files);
  return report;
}

}  // namespace

void bind_plain(nb::module_& m) {
  m.def("save_plain", save_plain, "state"_a, "path"_a, "describe"_a, "options"_a);
  m.def("load_plain", load_plain, "state"_a, "path"_a, "describe"_a, "options"_a);
  m.def("load_plain_new", load_plain_new, "path"_a, "keys"_a.none(), "of_tensor"_a, "options"_a);
  m.def("verify", verify_now, "path"_a, "threads"_a = 0, "progress"_a.none() = nb::none());
  m.def("gc", gc_now, "path"_a, "dry_run"_a = false, "force"_a = false);
}

}  // namespace cairn::python
