#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "base/current_error.h"
#include "base/trial.h"
#include "base/wire_bytes.h"
#include "cairn/cairn.h"
#include "checkpoint/dcp_names.h"
#include "group/step_watch.h"
#include "group/steps.h"
#include "plan/wire.h"
#include "save/coverage.h"
#include "save/saving.h"

namespace cairn {
namespace {

std::string encode(const WrittenData& data, int rank, int size) {
  const std::string results = encode_write_results(data.results, rank, size);
  std::string bytes;
  put<std::uint64_t>(bytes, results.size());
  bytes += results;
  bytes += data.attachment;
  return bytes;
}

WrittenData decode_written(std::string_view bytes, int rank, int size) {
  WireReader in(as_bytes(bytes));
  const ByteSpan results = in.take(in.get<std::uint64_t>());
  WrittenData data;
  decode_write_results(results, rank, size,
                       [&](const WriteResult& result) { data.results.push_back(result); });
  data.attachment = in.text(in.left());
  return data;
}

// The planner must have been told which items these are, each of them once.
void require_all_written(const SavePlan& plan, const WrittenData& data) {
  if (data.results.size() == plan.items.size()) return;
  throw Error(ErrorCode::kInternal,
              fmt::format("the storage writer wrote {} of {} items", data.results.size(), plan.items.size()));
}

// One save on one rank, from its first step to its last.
class Saving {
 public:
  Saving(StateMaker state, StateCheck check, const std::string& id, const SaveOptions& options, Group& group)
      : state_(std::move(state)),
        check_(std::move(check)),
        id_(id),
        options_(options),
        steps_(group, options.coordinator_rank, Steps::deadline_after(options.deadline)),
        planner_(options.planner),
        writer_(options.writer) {
    role_.rank = group.rank();
    role_.world_size = group.size();
    role_.is_coordinator = steps_.is_coordinator();
    role_.collective = options.use_collectives;
    role_.deadline = steps_.deadline();
    role_.progress = options.progress;
    role_.cancelled = group.size() > 1 ? &stop_ : options.cancelled;
    if (planner_ == nullptr) {
      SavePlannerOptions planning;
      planning.global.allow_partial = !options.use_collectives;
      own_planner_ = std::make_unique<DefaultSavePlanner>(planning);
      planner_ = own_planner_.get();
    }
  }

  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  ~Saving() { planner_->release_state(); }

  SaveResult run() {
    try {
      if (options_.use_collectives) {
        begin();
        const std::string mine = plan();
        result_.plan_bytes = steps_.bytes_exchanged();
        write(mine);
      } else {
        if (role_.world_size > 1) role_.attempt = agree_on_id();
        steps_.all_gather("save", [&] { return alone(); });
        retire_collective();
      }
    } catch (const UnheardError&) {
      // The others may have finished: what is on storage tells. If not, they may still be at it. A writer
      // that was not told of this save yet would speak of the one before.
      if (!has_writer_ || !writer_->is_published()) throw;
    } catch (const CheckpointError& e) {
      const auto& failures = e.failures();
      const bool may_come = std::any_of(failures.begin(), failures.end(), [](const auto& failure) {
        return failure.second.os_error() == EINPROGRESS;
      });
      // Published or not: what was asked for may still be carried out, and then everything has to be there.
      if (has_writer_ && !may_come) writer_->abandon();
      throw;
    } catch (...) {
      if (has_writer_) writer_->abandon();
      throw;
    }
    result_.save_id = role_.save_id;
    result_.warnings = writer_->warnings();
    result_.bytes_exchanged = steps_.bytes_exchanged();
    return std::move(result_);
  }

 private:
  // Every message says for which save it is, so that one of an older save which comes late is refused.
  std::string stamped(const std::string& message) const {
    return std::string(reinterpret_cast<const char*>(role_.save_id.data()), role_.save_id.size()) + message;
  }

  std::string_view unstamped(std::string_view message, int sender) const {
    const std::size_t length = role_.save_id.size();
    const bool is_ours =
        message.size() >= length && std::memcmp(message.data(), role_.save_id.data(), length) == 0;
    if (!is_ours) throw Error(ErrorCode::kConflict, "a message of another save").on_rank(sender);
    return message.substr(std::min(length, message.size()));
  }

  // Between steps; the writer looks by itself while it writes.
  void require_wanted() const {
    if (options_.cancelled == nullptr || !*options_.cancelled) return;
    throw Error(ErrorCode::kCancelled, "the save was cancelled");
  }

  // The coordinator takes the place and says which save this is.
  void begin() {
    role_.save_id = agree_on_id([&](const SaveId& id) {
      role_.save_id = id;
      CAIRN_POINT("save.before_lock");
      set_up_writer();
      CAIRN_POINT("save.begun");
    });
  }

  // A random one, the same on all ranks. `take` is called with it on the coordinator.
  SaveId agree_on_id(const std::function<void(const SaveId&)>& take = {}) {
    const std::string bytes = steps_.broadcast("begin", [&] {
      require_wanted();
      const SaveId id = random_save_id();
      if (take) take(id);
      return std::string(reinterpret_cast<const char*>(id.data()), id.size());
    });
    SaveId id;
    if (bytes.size() != id.size())
      throw Error(ErrorCode::kCorrupt, "the coordinator sent no save id").on_rank(steps_.coordinator());
    std::memcpy(id.data(), bytes.data(), bytes.size());
    return id;
  }

  void set_up_writer() {
    if (writer_ == nullptr) {
      std::shared_ptr<FileSystem> files = options_.files;
      if (files == nullptr) files = file_system_of(id_, {.create = true});
      own_writer_ = dcp_writer(std::move(files), options_.write);
      writer_ = own_writer_.get();
    }
    has_writer_ = true;
    writer_->set_up_storage_writer(role_);
  }

  SavePlan local_plan() {
    require_wanted();
    planner_->set_world_size(role_.collective ? role_.world_size : 1);
    const std::optional<StorageMeta> meta = writer_->storage_meta();
    planner_->set_up_planner(state_(), meta ? &*meta : nullptr, role_.is_coordinator || !role_.collective);
    return writer_->prepare_local_plan(planner_->create_local_plan());
  }

  std::vector<SavePlan> global_plan(std::vector<SavePlan> all) {
    GlobalSavePlan global = planner_->create_global_plan(std::move(all));
    metadata_ = std::move(global.metadata);
    return writer_->prepare_global_plan(std::move(global.plans));
  }

  // Returns this rank's part of the global plan, as the coordinator sent it.
  std::string plan() {
    return steps_.reduce_scatter(
        "plan",
        [&] {
          if (!role_.is_coordinator) set_up_writer();
          CAIRN_POINT("save.before_plan");
          std::string local = encode_local_plan(local_plan(), role_.rank, role_.world_size);
          CAIRN_POINT("save.locally_planned");
          return stamped(local);
        },
        [&](const std::vector<std::string>& all) {
          PlanGather gather(role_.world_size);
          for (std::size_t i = 0; i < all.size(); ++i)
            gather.add(as_bytes(unstamped(all[i], static_cast<int>(i))));
          const std::vector<SavePlan> plans = global_plan(gather.take());
          CAIRN_POINT("save.planned");
          PlanEncoder encoder;
          std::vector<std::string> messages;
          for (std::size_t i = 0; i < plans.size(); ++i)
            messages.push_back(stamped(
                encoder.encode(PlanMessage::kGlobalPlan, plans[i], static_cast<int>(i), role_.world_size)));
          return messages;
        });
  }

  WrittenData write_plan(SavePlan central) {
    const SavePlan plan = planner_->finish_plan(std::move(central));
    WrittenData data = writer_->write_data(plan, *planner_);
    require_all_written(plan, data);
    if (check_) check_();
    for (const WriteResult& result : data.results)
      result_.bytes += static_cast<std::uint64_t>(result.size_in_bytes);
    return data;
  }

  void finish(std::vector<WrittenData> all) {
    CAIRN_POINT("save.all_written");
    require_covered(*metadata_, all);
    require_wanted();
    auto metadata = std::make_shared<Metadata>(*metadata_);
    CAIRN_POINT("save.covered");
    writer_->finish(*metadata, std::move(all));
    CAIRN_POINT("save.published");
    result_.metadata = std::move(metadata);
  }

  std::string write_part(const std::string& central) {
    CAIRN_POINT("save.before_write");
    SavePlan plan =
        decode_global_plan(as_bytes(unstamped(central, steps_.coordinator())), role_.rank, role_.world_size);
    const WrittenData data = write_plan(std::move(plan));
    CAIRN_POINT("save.written");
    require_wanted();  // the last bytes may have been written before anybody looked
    return stamped(encode(data, role_.rank, role_.world_size));
  }

  void write(const std::string& central) {
    result_.announcement = steps_.all_reduce(
        "write",
        [&] {
          if (role_.world_size == 1) return write_part(central);
          return watched(steps_, options_.cancelled, stop_, [&] { return write_part(central); });
        },
        [&](const std::vector<std::string>& messages) {
          std::vector<WrittenData> all;
          for (std::size_t i = 0; i < messages.size(); ++i)
            all.push_back(decode_written(unstamped(messages[i], static_cast<int>(i)), static_cast<int>(i),
                                         role_.world_size));
          finish(std::move(all));
          return writer_->announcement();
        });
  }

  // The whole save of a rank that writes files and metadata of its own.
  std::string alone() {
    role_.save_id = random_save_id();
    set_up_writer();
    std::vector<SavePlan> plans = global_plan({local_plan()});
    std::vector<WrittenData> written;
    written.push_back(write_plan(std::move(plans.front())));
    finish(std::move(written));
    return {};
  }

  // Every rank has its own part now. Those that return before the old checkpoint of all ranks has gone would
  // load that.
  void retire_collective() {
    steps_.all_gather("retire", [&] {
      if (role_.is_coordinator) writer_->retire_collective();
      return std::string();
    });
  }

  std::atomic<bool> stop_ = false;  // among several ranks: somebody has cancelled or failed
  StateMaker state_;                // called inside a step: what it throws reaches all ranks
  StateCheck check_;
  const std::string& id_;
  const SaveOptions& options_;
  Steps steps_;
  WriterRole role_;
  SavePlanner* planner_;
  StorageWriter* writer_;
  bool has_writer_ = false;  // which knows of this save
  std::unique_ptr<SavePlanner> own_planner_;
  std::unique_ptr<StorageWriter> own_writer_;
  std::shared_ptr<const Metadata> metadata_;
  SaveResult result_;
};

}  // namespace

SaveResult run_save(StateMaker state, const std::string& id, const SaveOptions& options, StateCheck check) {
  return with_typed_errors([&] {
    const std::unique_ptr<Group> solo =
        options.group == nullptr || options.no_dist ? solo_group() : std::unique_ptr<Group>();
    return Saving(std::move(state), std::move(check), id, options, solo ? *solo : *options.group).run();
  });
}

SaveResult save(const StateDict& state, const std::string& id, const SaveOptions& options) {
  return run_save([&]() -> const StateDict& { return state; }, id, options);
}

void AppState::add(std::string name, Stateful& part) { parts_.emplace_back(std::move(name), &part); }

void AppState::add(std::string name, Value value) { parts_.emplace_back(std::move(name), std::move(value)); }

const Value* AppState::find(std::string_view name) const {
  for (const auto& [key, part] : parts_)
    if (key == name) return std::get_if<Value>(&part);
  return nullptr;
}

StateDict AppState::expand() const {
  StateDict expanded;
  for (const auto& [name, part] : parts_) {
    Stateful* const* stateful = std::get_if<Stateful*>(&part);
    expanded.set(name, stateful != nullptr ? Value((*stateful)->state_dict()) : std::get<Value>(part));
  }
  return expanded;
}

SaveResult save(AppState& state, const std::string& id, const SaveOptions& options) {
  StateDict expanded;
  const auto expand = [&]() -> const StateDict& { return expanded = state.expand(); };
  return run_save(expand, id, options);
}

}  // namespace cairn
