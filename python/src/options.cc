#include "options.h"

#include <chrono>
#include <string>

#include "cairn/error.h"
#include "python_files.h"
#include "transforms.h"

namespace cairn::python {
namespace {

std::chrono::nanoseconds to_time(nb::handle seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(nb::cast<double>(seconds)));
}

Verify to_verify(nb::handle name) {
  const std::string text = nb::cast<std::string>(name);
  if (text == "none") return Verify::kNone;
  if (text == "usual") return Verify::kUsual;
  if (text == "full") return Verify::kFull;
  throw Error(ErrorCode::kInvalidArgument, "verify is 'none', 'usual' or 'full', not '" + text + "'");
}

OnLowSpace to_low_space(nb::handle name) {
  const std::string text = nb::cast<std::string>(name);
  if (text == "error") return OnLowSpace::kError;
  if (text == "warn") return OnLowSpace::kWarn;
  if (text == "ignore") return OnLowSpace::kIgnore;
  throw Error(ErrorCode::kInvalidArgument, "low_space is 'error', 'warn' or 'ignore', not '" + text + "'");
}

std::shared_ptr<ItemTransform> to_transform(nb::handle value) {
  return value.is_none() ? nullptr : nb::cast<Transforms&>(value).transform;
}

bool apply_write(const std::string& name, nb::handle value, WriteOptions& write) {
  if (name == "overwrite")
    write.overwrite = nb::cast<bool>(value);
  else if (name == "files_per_rank")
    write.files_per_rank = nb::cast<int>(value);
  else if (name == "spare_cores")
    write.spare_cores = nb::cast<int>(value);
  else if (name == "durable")
    write.durable = nb::cast<bool>(value);
  else if (name == "checksums")
    write.checksums = nb::cast<bool>(value);
  else if (name == "strong_hashes")
    write.strong_hashes = nb::cast<bool>(value);
  else if (name == "file_per_item")
    write.file_per_item = nb::cast<bool>(value);
  else if (name == "transforms")
    write.transforms = nb::cast<std::vector<std::string>>(value);
  else if (name == "transform")
    write.transform = to_transform(value);
  else if (name == "memory_budget")
    write.memory_budget = nb::cast<std::uint64_t>(value);
  else if (name == "bytes_per_second")
    write.bytes_per_second = nb::cast<std::uint64_t>(value);
  else if (name == "object_bytes")
    write.limits.object_bytes = nb::cast<std::uint64_t>(value);
  else if (name == "low_space")
    write.low_space = to_low_space(value);
  else
    return false;
  return true;
}

std::shared_ptr<FileSystem> to_files(nb::handle value) {
  return value.is_none() ? nullptr : nb::cast<Files&>(value).files;
}

[[noreturn]] void refuse(const std::string& name) {
  throw Error(ErrorCode::kInvalidArgument, "there is no option '" + name + "'");
}

// Calls f with the name and value of every option.
template <class F> void for_each_option(const nb::dict& options, const F& f) {
  for (const auto& [key, value] : options) {
    const std::string name = to_text(key);
    try {
      f(name, value);
    } catch (const nb::cast_error&) {
      throw Error(ErrorCode::kInvalidArgument,
                  "option '" + name + "' cannot be " + nb::cast<std::string>(nb::repr(value)));
    }
  }
}

}  // namespace

// What it raises is lost: a bar is no reason to lose a checkpoint.
ProgressCallback to_progress(nb::handle callable) {
  if (callable.is_none()) return {};
  const std::shared_ptr<void> held = owner_of(nb::borrow(callable));
  return [held](const Progress& progress) {
    nb::gil_scoped_acquire acquire;
    try {
      nb::handle(static_cast<PyObject*>(held.get()))(to_str(progress.phase), progress.done, progress.total);
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable("the progress of a save or load");
    }
  };
}

void apply(nb::dict options, WriteOptions& write) {
  for_each_option(options, [&](const std::string& name, nb::handle value) {
    if (!apply_write(name, value, write)) refuse(name);
  });
}

void apply(nb::dict options, SaveOptions& save) {
  for_each_option(options, [&](const std::string& name, nb::handle value) {
    if (name == "coordinator_rank")
      save.coordinator_rank = nb::cast<int>(value);
    else if (name == "use_collectives")
      save.use_collectives = nb::cast<bool>(value);
    else if (name == "deadline")
      save.deadline = to_time(value);
    else if (name == "progress")
      save.progress = to_progress(value);
    else if (name == "files")
      save.files = to_files(value);
    else if (!apply_write(name, value, save.write))
      refuse(name);
  });
}

void apply(nb::dict options, LoadOptions& load) {
  for_each_option(options, [&](const std::string& name, nb::handle value) {
    if (name == "coordinator_rank")
      load.coordinator_rank = nb::cast<int>(value);
    else if (name == "deadline")
      load.deadline = to_time(value);
    else if (name == "progress")
      load.progress = to_progress(value);
    else if (name == "files")
      load.files = to_files(value);
    else if (name == "transform")
      load.read.transform = to_transform(value);
    else if (name == "verify")
      load.read.verify = to_verify(value);
    else if (name == "threads")
      load.read.threads = nb::cast<int>(value);
    else if (name == "memory_budget")
      load.read.memory_budget = nb::cast<std::uint64_t>(value);
    else if (name == "object_bytes")
      load.read.limits.object_bytes = nb::cast<std::uint64_t>(value);
    else if (name == "allow_partial")
      load.plan.allow_partial_load = nb::cast<bool>(value);
    else if (name == "flatten")
      load.plan.flatten_state_dict = nb::cast<bool>(value);
    else if (name == "follow_links")
      load.read.follow_links = nb::cast<bool>(value);
    else if (name == "read_once")
      load.plan.replicas = nb::cast<bool>(value) ? ReplicaReads::kReadOnce : ReplicaReads::kReadAll;
    else
      refuse(name);
  });
}

}  // namespace cairn::python
