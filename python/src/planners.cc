#include "planners.h"

#include <iterator>
#include <utility>

#include "cairn/error.h"

namespace cairn::python {

void TorchSavePlanner::begin(TorchState& state, nb::object encode, nb::object resolve, Caller* caller) {
  state_ = &state;
  caller_ = caller;
  encode_ = std::move(encode);
  resolve_ = std::move(resolve);
  resolves_ = !resolve_.is_none();
  lasting_ = {};
  if (!resolves_) return;
  for (const auto& [name, value] : state.flat()) {
    if (const auto* tensor = value.get_if<Tensor>()) lasting_.add(*tensor);
    if (const auto* sharded = value.get_if<ShardedTensor>())
      for (const auto& shard : sharded->shards) lasting_.add(shard.data);
  }
}

void TorchSavePlanner::end() {
  state_ = nullptr;
  ahead_.clear();
  encode_.reset();
  resolve_.reset();
}

void TorchSavePlanner::fail(nb::handle exception) { failure_ = error_of(exception); }

void TorchSavePlanner::set_up_planner(const StateDict& state, const StorageMeta* storage_meta,
                                      bool is_coordinator) {
  if (failure_) throw Error(*failure_);
  DefaultSavePlanner::set_up_planner(state, storage_meta, is_coordinator);
}

// What a subclass in Python makes of an item.
Resolved TorchSavePlanner::ask(const WriteItem& item) {
  nb::object offsets = nb::none(), sizes = nb::none();
  if (item.tensor_data) {
    offsets = to_tuple(item.tensor_data->chunk.offsets);
    sizes = to_tuple(item.tensor_data->chunk.sizes);
  }
  nb::object made = resolve_(to_str(item.index.fqn), offsets, sizes);
  if (made.is_none()) return {};
  if (PyBytes_Check(made.ptr())) return {std::string(bytes_of(made)), std::nullopt};
  return {std::nullopt, lasting_tensor(std::move(made), lasting_)};
}

void TorchSavePlanner::expect(std::span<const WriteItem> items) {
  if (!resolves_ || items.empty()) return;
  std::vector<Resolved> made = ask_together(caller_, items, [&](const WriteItem& item) { return ask(item); });
  mine().assign(std::move_iterator(made.begin()), std::move_iterator(made.end()));
}

std::deque<Resolved>& TorchSavePlanner::mine() {
  const std::lock_guard lock(mutex_);
  return ahead_[std::this_thread::get_id()];
}

Resolved TorchSavePlanner::take() {
  Resolved first = std::move(mine().front());
  mine().pop_front();
  return first;
}

std::optional<std::string> TorchSavePlanner::resolve_archive(const WriteItem& item) {
  if (!resolves_) return encoded(item);
  if (mine().empty()) expect({&item, 1});
  Resolved& made = mine().front();
  std::optional<std::string> archive = made.is_as_it_was() ? encoded(item) : std::move(made.archive);
  if (archive) take();
  return archive;
}

// What only Python can encode: an object, or a piece of a tensor of a class of Python's.
std::optional<std::string> TorchSavePlanner::encoded(const WriteItem& item) {
  const nb::object* object = state_->object(item.index.fqn);
  const std::string* frozen = state_->archive(item.index.fqn);
  if (item.tensor_data && state_->has_pieces()) {
    const TorchState::Foreign* piece =
        state_->piece(item.index.fqn, {item.tensor_data->chunk.offsets, item.tensor_data->chunk.sizes});
    object = piece == nullptr ? nullptr : &piece->tensor;
    frozen = piece == nullptr || piece->archive.empty() ? nullptr : &piece->archive;
  }
  if (object == nullptr) return std::nullopt;
  if (frozen != nullptr) return *frozen;
  const auto encode = [&](const WriteItem&) {
    return Resolved{std::string(bytes_of(nb::object(encode_(*object)))), std::nullopt};
  };
  return std::move(ask_together(caller_, {&item, 1}, encode).front().archive);
}

Value TorchSavePlanner::resolve_data(const WriteItem& item) {
  std::optional<Tensor> made = resolves_ ? take().tensor : std::nullopt;
  return made ? Value(std::move(*made)) : DefaultSavePlanner::resolve_data(item);
}

void TorchLoadPlanner::fail(nb::handle exception) { failure_ = error_of(exception); }

void TorchLoadPlanner::set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) {
  if (failure_) throw Error(*failure_);
  DefaultLoadPlanner::set_up_planner(state, metadata, is_coordinator);
}

std::string* TorchLoadPlanner::resolve_bytes(const ReadItem& item) {
  const std::lock_guard lock(mutex_);
  return &archives_[item.dest_index.fqn];
}

Flattened TorchLoadPlanner::cut(const StateDict& values, FlattenRule rule) const {
  if (rule == FlattenRule::kCurrent || !torch_.is_flattened()) return torch_.entries(values);
  return with_python([&] {
    const TorchState& before = torch_.as_before();
    return before.entries(before.flat());
  });
}

}  // namespace cairn::python
