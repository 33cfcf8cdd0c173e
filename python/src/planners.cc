#include "planners.h"

#include <utility>

#include "cairn/error.h"

namespace cairn::python {
namespace {

// A tensor that Python made for the item at hand: resolve_archive gets it, resolve_data, called next by the
// same thread, gives it to the writer.
thread_local std::optional<Tensor> made_tensor;

}  // namespace

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
  encode_.reset();
  resolve_.reset();
}

void TorchSavePlanner::fail(nb::handle exception) { failure_ = error_of(exception); }

void TorchSavePlanner::set_up_planner(const StateDict& state, const StorageMeta* storage_meta,
                                      bool is_coordinator) {
  if (failure_) throw Error(*failure_);
  DefaultSavePlanner::set_up_planner(state, storage_meta, is_coordinator);
}

// What only Python can encode: an object, or a piece of a tensor of a class of Python's.
std::optional<std::string> TorchSavePlanner::resolve_archive(const WriteItem& item) {
  const nb::object* object = state_->object(item.index.fqn);
  const std::string* frozen = state_->archive(item.index.fqn);
  if (item.tensor_data && state_->has_pieces()) {
    const TorchState::Foreign* piece =
        state_->piece(item.index.fqn, {item.tensor_data->chunk.offsets, item.tensor_data->chunk.sizes});
    object = piece == nullptr ? nullptr : &piece->tensor;
    frozen = piece == nullptr || piece->archive.empty() ? nullptr : &piece->archive;
  }
  if (!resolves_) {
    if (object == nullptr) return std::nullopt;
    if (frozen != nullptr) return *frozen;
  }
  std::optional<std::string> archive;
  std::optional<Tensor> tensor;
  const auto ask = [&] {
    if (!resolves_) {
      archive = bytes_of(nb::object(encode_(*object)));
      return;
    }
    nb::object offsets = nb::none(), sizes = nb::none();
    if (item.tensor_data) {
      offsets = to_tuple(item.tensor_data->chunk.offsets);
      sizes = to_tuple(item.tensor_data->chunk.sizes);
    }
    nb::object made = resolve_(to_str(item.index.fqn), offsets, sizes);
    if (PyBytes_Check(made.ptr())) {
      archive = bytes_of(made);
      return;
    }
    if (!lasting_.has(plain_tensor(made).value().view())) made = made.attr("clone")();
    const TensorView view = plain_tensor(made).value().view();
    tensor = Tensor(view, owner_of(std::move(made)));
  };
  if (caller_ != nullptr) {
    caller_->call(ask);
  } else {
    with_python(ask);
  }
  made_tensor = std::move(tensor);
  return archive;
}

Value TorchSavePlanner::resolve_data(const WriteItem& item) {
  if (made_tensor) return std::move(*std::exchange(made_tensor, std::nullopt));
  return DefaultSavePlanner::resolve_data(item);
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
