#include "background/staging_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/row_copies.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

constexpr std::uint64_t kGatheredPiece = 8U << 20;
constexpr std::size_t kMostBegun =
    3;  // tasks of a thread: the device has work while the next one is made ready

TensorView flat(const std::byte* data, std::uint64_t bytes, Device device) {
  // Nobody writes through it.
  TensorView view =
      TensorView::contiguous(const_cast<std::byte*>(data), DType::kUInt8, {static_cast<std::int64_t>(bytes)});
  view.device = device;
  return view;
}

class TaskMaker {
 public:
  TaskMaker(const StagingLayout& layout, const std::vector<PlaceMemory>& memory)
      : layout_(layout), memory_(memory) {}

  std::vector<DeviceTask> run() {
    for (const StagedRun& run : layout_.runs)
      if (is_devices(run.place)) cut(run);
    for (const std::size_t i : layout_.gathered)
      if (is_devices(layout_.tensors[i].place)) cut(layout_.tensors[i]);
    return std::move(tasks_);
  }

 private:
  bool is_devices(std::size_t place) const { return !layout_.places[place].device.is_cpu(); }

  std::size_t cell_of(const PlaceMemory& memory, const std::byte* to) const {
    return memory.block == nullptr
               ? 0
               : static_cast<std::size_t>(to - memory.block->data()) / SnapshotBlock::kCell;
  }

  void add(std::size_t place, TensorView from, std::byte* to) {
    const PlaceMemory& memory = memory_[place];
    const std::size_t cell = cell_of(memory, to);
    if (tasks_.empty() || tasks_.back().memory != &memory || tasks_.back().cell != cell)
      tasks_.push_back({&memory, cell, {}, 0});
    tasks_.back().bytes += from.bytes();
    tasks_.back().pieces.push_back({std::move(from), to});
  }

  // At the borders of cells, because no copy may reach from one pinned piece into another.
  void cut(const StagedRun& run) {
    const PlaceMemory& memory = memory_[run.place];
    const Device device = layout_.places[run.place].device;
    for (std::uint64_t done = 0; done < run.bytes;) {
      std::byte* const to = memory.data + run.at + done;
      std::uint64_t piece = run.bytes - done;
      if (memory.block != nullptr) {
        const auto at = static_cast<std::uint64_t>(to - memory.block->data());
        piece = std::min(piece, SnapshotBlock::kCell - at % SnapshotBlock::kCell);
      }
      add(run.place, flat(run.from + done, piece, device), to);
      done += piece;
    }
  }

  void cut(const StagedTensor& tensor) {
    const TensorView& view = tensor.live.view();
    std::byte* to = memory_[tensor.place].data + tensor.at;
    const std::uint64_t item = item_size(view.dtype);
    for_each_piece(
        Box::whole(view.shape), kGatheredPiece,
        [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item; },
        [&](const Box& box) {
          TensorView piece = view.narrow(box);
          const std::uint64_t bytes = piece.bytes();
          add(tensor.place, std::move(piece), to);
          to += bytes;
        });
  }

  const StagingLayout& layout_;
  const std::vector<PlaceMemory>& memory_;
  std::vector<DeviceTask> tasks_;
};

}  // namespace

std::vector<DeviceTask> device_tasks(const StagingLayout& layout, const std::vector<PlaceMemory>& memory) {
  return TaskMaker(layout, memory).run();
}

std::vector<UnpinnedCell> unpinned_cells(const std::vector<DeviceTask>& tasks, const DeviceLanes& lanes) {
  std::vector<UnpinnedCell> cells;
  if (lanes.pinning() != Pinning::kSnapshot) return cells;
  for (const DeviceTask& task : tasks) {
    const std::shared_ptr<SnapshotBlock>& block = task.memory->block;
    if (block == nullptr || block->is_pinned(task.cell)) continue;
    cells.push_back({block, task.cell, task.pieces.front().from.device.index});
  }
  // Two places may share a cell, and so do tensors that are gathered.
  const auto where = [](const UnpinnedCell& one) { return std::pair(one.block.get(), one.cell); };
  const auto before = [&](const UnpinnedCell& a, const UnpinnedCell& b) { return where(a) < where(b); };
  const auto same = [&](const UnpinnedCell& a, const UnpinnedCell& b) { return where(a) == where(b); };
  std::sort(cells.begin(), cells.end(), before);
  cells.erase(std::unique(cells.begin(), cells.end(), same), cells.end());
  return cells;
}

void pin_cell(SnapshotBlock& block, std::size_t cell, int device, DeviceLanes& lanes) {
  if (lanes.pinning() != Pinning::kSnapshot) return;
  if (!block.pin(cell, lanes.driver().get(), device)) lanes.note_refusal();
}

// Whether the device itself can put the piece where it belongs.
bool DeviceCopier::is_straight(const DeviceTask& task, const DeviceTask::Copy& piece, bool pinned) const {
  if (task.memory->block == nullptr) return true;  // from a device to itself
  if (!pinned && lanes_.pinning() != Pinning::kNone) return false;
  const auto at = static_cast<std::uint64_t>(piece.to - task.memory->block->data());
  const bool in_cell = at % SnapshotBlock::kCell + piece.from.bytes() <= SnapshotBlock::kCell;
  return in_cell && !is_better_gathered(piece.from);
}

void DeviceCopier::pass_through_ring(const DeviceTask& task, const DeviceTask::Copy& piece) {
  DeviceReader& reader = behind_caller(task, lane_->reader(piece.from.device.index));
  std::byte* to = piece.to;
  reader.begin(piece.from);
  for (ByteSpan bytes = reader.next(); !bytes.empty(); bytes = reader.next()) {
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
}

std::uint64_t DeviceCopier::begin(const DeviceTask& task) {
  if (lane_ == nullptr) lane_ = lanes_.take();
  const int device = task.pieces.front().from.device.index;
  SnapshotBlock* const block = task.memory->block.get();
  if (block != nullptr && lanes_.must_pin()) pin_cell(*block, task.cell, device, lanes_);
  const bool pinned = block != nullptr && block->is_pinned(task.cell);
  DeviceStream& stream = behind_caller(task, lane_->stream(device));
  const CopyWay way = block == nullptr ? CopyWay::kOnDevice : CopyWay::kToHost;
  for (const DeviceTask::Copy& piece : task.pieces) {
    if (!is_straight(task, piece, pinned)) continue;
    RowCopies(piece.from, TensorView::contiguous(piece.to, piece.from.dtype, piece.from.shape))
        .for_each([&](const DeviceCopy& copy) { stream.begin(way, copy); });
  }
  begun_.push_back({&stream, stream.mark(), task.bytes});
  // The others pass through the ring, while the device is busy with those above.
  for (const DeviceTask::Copy& piece : task.pieces)
    if (!is_straight(task, piece, pinned)) pass_through_ring(task, piece);
  std::uint64_t ended = 0;
  while (begun_.size() >= kMostBegun) ended += wait_for_oldest();
  return ended;
}

std::uint64_t DeviceCopier::wait_for_oldest() {
  const Begun oldest = begun_.front();
  oldest.stream->wait(oldest.mark);
  begun_.pop_front();
  return oldest.bytes;
}

std::uint64_t DeviceCopier::finish() {
  std::uint64_t ended = 0;
  while (!begun_.empty()) ended += wait_for_oldest();
  if (lane_ != nullptr) lanes_.give_back(std::move(lane_));
  return ended;
}

}  // namespace cairn
