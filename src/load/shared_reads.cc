#include "load/shared_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "reading/stored_item.h"

namespace cairn {
namespace {

void put_text(std::string& out, std::string_view text) {
  put_varint(out, text.size());
  out.append(text);
}

void put_shape(std::string& out, const Shape& shape) {
  put_varint(out, shape.rank());
  for (const std::int64_t n : shape) put(out, n);
}

Shape shape_of(WireReader& reader) {
  const std::uint64_t rank = reader.varint();
  const ByteSpan values = reader.take(checked_mul<std::uint64_t>(rank, 8));
  Shape shape(rank, 0);
  for (std::size_t i = 0; i < rank; ++i) shape[i] = load<std::int64_t>(values.data() + 8 * i);
  return shape;
}

Shape sum(const Shape& a, const Shape& b) {
  Shape shape = a;
  for (std::size_t d = 0; d < a.rank(); ++d) shape[d] = checked_add(a[d], b[d]);
  return shape;
}

// The part of an item that a piece is.
ReadItem part_of(ReadItem item, const Box& box) {
  if (item.type != LoadItemType::kTensor) return item;
  item.dest_offsets = sum(item.dest_offsets, box.offsets);
  item.storage_offsets = sum(item.storage_offsets, box.offsets);
  item.lengths = box.sizes;
  return item;
}

void add_to(ReadReport& all, const ReadReport& more) {
  all.needed += more.needed;
  all.read += more.read;
  all.verified += more.verified;
  all.unverified += more.unverified;
}

}  // namespace

// Takes what a reader reads into memory. Destinations are named by number.
class SharedReads::Capture final : public LoadPlanner {
 public:
  struct Place {
    Tensor tensor;
    std::string object;
  };
  explicit Capture(std::size_t places) : places_(places) {}
  Place& operator[](std::size_t i) { return places_[i]; }

  void set_up_planner(StateDict&, const Metadata*, bool) override {}
  LoadPlan create_local_plan() override { return {}; }
  std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override { return all; }
  LoadPlan finish_plan(LoadPlan central) override { return central; }
  void load_bytes(const ReadItem& item, Value value) override {
    StringSink sink;
    write_torch_file(sink, value);
    place(item).object = std::move(sink.text);
  }
  std::string* resolve_bytes(const ReadItem& item) override { return &place(item).object; }
  TensorView resolve_tensor(const ReadItem& item) override { return place(item).tensor.view(); }
  void commit_tensor(const ReadItem&, const TensorView&) override {}

 private:
  Place& place(const ReadItem& item) {
    return places_.at(static_cast<std::size_t>(item.dest_index.index.value()));
  }
  std::vector<Place> places_;
};

SharedReads::SharedReads(const LoadPlan& plan, int rank, const Metadata& metadata, StorageReader& reader,
                         LoadPlanner& planner, const ReadOptions& options, std::uint64_t round_bytes,
                         ReadReport& report)
    : plan_(plan),
      rank_(rank),
      metadata_(metadata),
      reader_(reader),
      planner_(planner),
      limits_(options.limits),
      devices_(options.devices),
      round_bytes_(round_bytes),
      report_(report) {
  std::map<std::string_view, DType> known;
  for (const auto& [name, entry] : metadata.state_dict_metadata) {
    if (const auto* tensor = std::get_if<TensorStorageMetadata>(&entry))
      known[name] = tensor->properties.dtype;
  }
  for (const SharedRead& shared : plan.shared) {
    const ReadItem& item = plan.items.at(shared.item);
    if (const auto dtype = known.find(item.storage_index.fqn); dtype != known.end())
      dtypes_.emplace(item.storage_index.fqn, dtype->second);
    if (shared.reader == rank) {
      if (shared.for_others) for_others_.insert(shared.item);
      cut(shared.item);
      continue;
    }
    expected_[key_of(item)].push_back(shared.item);
    const bool tensor = item.type == LoadItemType::kTensor;
    missing_[shared.item] = tensor ? static_cast<std::uint64_t>(item.lengths.numel()) : 1;
  }
}

LoadPlan SharedReads::without_shared(const LoadPlan& plan) {
  LoadPlan rest;
  rest.storage_data = plan.storage_data;
  rest.planner_data = plan.planner_data;
  std::vector<bool> shared(plan.items.size(), false);
  for (const SharedRead& read : plan.shared) shared.at(read.item) = true;
  for (std::size_t i = 0; i < plan.items.size(); ++i)
    if (!shared[i]) rest.items.push_back(plan.items[i]);
  return rest;
}

// Into pieces of at most round_bytes_, along the outermost dimension that has more than one element.
void SharedReads::cut(std::size_t index) {
  const ReadItem& item = plan_.items[index];
  if (item.type != LoadItemType::kTensor) {
    pieces_.push_back({index, {}});
    return;
  }
  std::vector<Box> boxes = {Box::whole(item.lengths)};
  while (!boxes.empty()) {
    const Box box = std::move(boxes.back());
    boxes.pop_back();
    const std::uint64_t bytes = bytes_of({index, box});
    std::size_t axis = 0;
    while (axis < box.rank() && box.sizes[axis] <= 1) ++axis;
    if (bytes <= round_bytes_ || axis == box.rank()) {
      pieces_.push_back({index, box});
      continue;
    }
    const std::uint64_t row = bytes / static_cast<std::uint64_t>(box.sizes[axis]);
    const auto rows =
        static_cast<std::int64_t>(std::max<std::uint64_t>(1, round_bytes_ / std::max<std::uint64_t>(row, 1)));
    for (std::int64_t at = 0; at < box.sizes[axis]; at += rows) {
      Box part = box;
      part.offsets[axis] += at;
      part.sizes[axis] = std::min(rows, box.sizes[axis] - at);
      boxes.push_back(std::move(part));
    }
  }
}

DType SharedReads::stored_dtype(const ReadItem& item) const {
  const auto known = dtypes_.find(item.storage_index.fqn);
  if (known != dtypes_.end()) return known->second;
  throw Error(ErrorCode::kNotFound, "the checkpoint has no such tensor").of_tensor(item.storage_index.fqn);
}

std::uint64_t SharedReads::bytes_of(const ItemPart& piece) const {
  const ReadItem& item = plan_.items[piece.item];
  if (item.type != LoadItemType::kTensor) return 0;
  return checked_mul<std::uint64_t>(static_cast<std::uint64_t>(piece.box.volume()),
                                    item_size(stored_dtype(item)));
}

// What the item reads, whoever reads it.
std::string SharedReads::key_of(const ReadItem& item) const {
  std::string key;
  put(key, static_cast<std::uint8_t>(item.type));
  put_text(key, item.storage_index.fqn);
  if (item.type != LoadItemType::kTensor) return key;
  put_shape(key, item.storage_index.offset.value_or(Shape()));
  put_shape(key, item.storage_offsets);
  put_shape(key, item.lengths);
  return key;
}

std::string SharedReads::next_round() {
  const std::size_t first = next_;
  std::uint64_t bytes = 0;
  LoadPlan plan;
  for (; next_ < pieces_.size(); ++next_) {
    bytes += bytes_of(pieces_[next_]);
    if (bytes > round_bytes_ && next_ > first) break;
    ReadItem item = part_of(plan_.items[pieces_[next_].item], pieces_[next_].box);
    item.dest_index.index = static_cast<std::int64_t>(next_ - first);
    item.dest_offsets = Shape(item.lengths.rank(), 0);
    plan.items.push_back(std::move(item));
  }
  if (plan.items.empty()) return "";
  Capture capture(plan.items.size());
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const ReadItem& item = plan.items[i];
    if (item.type == LoadItemType::kTensor)
      capture[i].tensor = Tensor::empty(stored_dtype(item), item.lengths);
  }
  ReadReport report;
  try {
    reader_.read_data(plan, capture, report);
  } catch (...) {
    add_to(report_, report);
    throw;
  }
  add_to(report_, report);

  std::string message;
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const ItemPart& piece = pieces_[first + i];
    const ReadItem& item = plan_.items[piece.item];
    const bool tensor = item.type == LoadItemType::kTensor;
    std::string data =
        tensor ? std::string(as_text(capture[i].tensor.bytes())) : std::move(capture[i].object);
    capture[i] = {};
    const DType dtype = tensor ? stored_dtype(item) : DType::kUInt8;
    put_text(message, key_of(item));
    put_shape(message, piece.box.offsets);
    put_shape(message, piece.box.sizes);
    put(message, static_cast<std::uint8_t>(dtype));
    put_text(message, data);
    if (!for_others_.contains(piece.item)) deliver(piece, dtype, data);
  }
  return message;
}

void SharedReads::receive(std::string_view message) {
  WireReader reader(as_bytes(message));
  while (reader.left() > 0) {
    const std::string_view key = reader.text(reader.varint());
    const Box box{shape_of(reader), shape_of(reader)};
    const auto dtype = reader.get<std::uint8_t>();
    std::string data(reader.text(reader.varint()));
    const auto wanted = expected_.find(key);
    if (wanted == expected_.end()) continue;
    if (dtype >= kDTypeCount) reader.fail("has an element type that cannot be");
    for (const std::size_t index : wanted->second) {
      const ReadItem& item = plan_.items[index];
      std::uint64_t elements = 1;
      if (item.type == LoadItemType::kTensor) {
        const Box whole = Box::whole(item.lengths);
        if (box.offsets.rank() != whole.rank() || box.rank() != whole.rank() || !whole.contains(box))
          reader.fail("has a piece that is no part of its item");
        elements = static_cast<std::uint64_t>(box.volume());
        if (data.size() != elements * item_size(static_cast<DType>(dtype)))
          reader.fail("has a piece of the wrong size");
      }
      std::uint64_t& missing = missing_[index];
      if (elements > missing) reader.fail("has a piece twice");
      missing -= elements;
      deliver({index, box}, static_cast<DType>(dtype), data);
    }
  }
}

void SharedReads::deliver(const ItemPart& piece, DType dtype, std::string& bytes) {
  const ReadItem item = part_of(plan_.items[piece.item], piece.box);
  try {
    if (item.type == LoadItemType::kTensor) {
      const TensorView to = planner_.resolve_tensor(item);
      note_written(item.dest_index.fqn);
      const TensorView from = TensorView::contiguous(bytes.data(), dtype, item.lengths);
      if (to.device.is_cpu()) {
        copy(from, to);
      } else {
        senders_.to(to.device).send_copy(from, to);
        senders_.wait();
      }
      planner_.commit_tensor(item, to);
    } else {
      std::string* const archive = planner_.resolve_bytes(item);
      Value value = archive == nullptr ? load_object(memory_source(as_bytes(bytes)), limits_) : Value();
      note_written(item.dest_index.fqn);
      if (archive == nullptr) {
        planner_.load_bytes(item, std::move(value));
      } else {
        *archive = bytes;
      }
    }
  } catch (Error& e) {
    e.of_tensor(item.storage_index.fqn);
    throw;
  }
}

void SharedReads::note_written(const std::string& name) {
  const auto at = std::lower_bound(report_.written.begin(), report_.written.end(), name);
  if (at == report_.written.end() || *at != name) report_.written.insert(at, name);
}

void SharedReads::require_complete() const {
  for (const auto& [index, missing] : missing_) {
    if (missing == 0) continue;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("{} elements did not arrive from the rank that reads them", missing))
        .of_tensor(plan_.items[index].storage_index.fqn);
  }
}

}  // namespace cairn
