#include "save/item_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/hash.h"
#include "base/source.h"
#include "cairn/error.h"
#include "format/tensor_blob.h"
#include "format/torch_file.h"
#include "format/zstd_sink.h"
#include "reading/stored_item.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastAligned = 64U << 10;  // smaller tensors are not worth the padding
constexpr std::uint64_t kSmallAlignment = 64;
constexpr std::size_t kGather = 1U << 20;
constexpr std::uint64_t kArchiveBytes = 4096;  // of an archive around a tensor; a generous guess
constexpr std::string_view kZstd = "zstd";
constexpr std::size_t kCallersPiece = 4U << 20;  // bytes that a caller's transform gets at a time
constexpr std::uint64_t kMostUnfolding = 64;     // bytes in memory that a byte of an object may become

// What the metadata calls them, in the order to undo them.
std::vector<std::string> descriptors_of(const std::vector<std::string>& transforms) {
  return std::vector<std::string>(transforms.size(), "stream.zstd/1");
}

const TensorView& checked_tensor(const Value& value, const WriteItem& item) {
  const auto* tensor = value.get_if<Tensor>();
  if (tensor == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "the planner planned a tensor and gave " + to_string(value, 60));
  }
  const TensorView& view = tensor->view();
  const TensorWriteData& planned = item.tensor_data.value();
  if (view.shape != planned.chunk.sizes || view.dtype != planned.properties.dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the planner planned {} {} and gave {} {}", name_of(planned.properties.dtype),
                            to_string(planned.chunk.sizes), name_of(view.dtype), to_string(view.shape)));
  }
  return view;
}

// A blob's elements as they are to be stored: as they lie in memory, or in row-major order.
TensorView stored_view(const TensorView& tensor, const TensorBlob& blob) {
  if (!blob.memory()) return tensor;
  TensorView bytes =
      TensorView::contiguous(tensor.data, DType::kUInt8, {static_cast<std::int64_t>(blob.data_bytes())});
  bytes.device = tensor.device;
  return bytes;
}

bool is_on_device(const TensorView& tensor) { return !tensor.device.is_cpu(); }

// What is appended goes through a caller's transform.
class EncoderSink final : public ByteSink {
 public:
  EncoderSink(ItemEncoder& to, Pace& pace) : to_(to), pace_(pace) {}

  void append(ByteSpan bytes) override {
    while (!bytes.empty()) {
      const ByteSpan piece = bytes.first(std::min(bytes.size(), kCallersPiece));
      pace_.pass(0);
      to_.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  }

 private:
  ItemEncoder& to_;
  Pace& pace_;
};

}  // namespace

void check_transforms(const std::vector<std::string>& transforms) {
  for (const std::string& name : transforms) {
    if (name != kZstd) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("the transform '{}' is not known; 'zstd' is", name.substr(0, 64)));
    }
    if (!zstd_is_built_in()) throw Error(ErrorCode::kUnsupported, "this build of cairn has no libzstd");
  }
}

ItemWriter::ItemWriter(FileStream& stream, std::string file, SavePlanner& planner, Pace& pace,
                       ItemOptions options)
    : stream_(stream), file_(std::move(file)), planner_(planner), pace_(pace), options_(std::move(options)) {}

std::uint64_t ItemWriter::most_bytes(std::uint64_t tensor_bytes) {
  return tensor_bytes + kArchiveBytes + (tensor_bytes >= kLeastAligned ? kDirectAlignment : kSmallAlignment);
}

WriteResult ItemWriter::write(const WriteItem& item) {
  try {
    stream_.begin_tensor(item.index.fqn);
    std::optional<std::string> archive = planner_.resolve_archive(item);
    const bool is_object = item.type == WriteItemType::kByteIO;
    if (archive && is_object) check_object(*archive, false);
    const Value value = archive ? Value() : planner_.resolve_data(item);
    if (!archive && is_object) archive = object_archive(value);
    const bool is_tensor = !is_object && !archive;
    const TensorView* tensor = is_tensor ? &checked_tensor(value, item) : nullptr;
    std::uint64_t begin = stream_.position();
    const auto write_whole = [&](ByteSink& to) {
      if (archive) {
        to.append(as_bytes(*archive));
      } else if (tensor != nullptr && is_on_device(*tensor)) {
        write_blob(to, *tensor);
      } else {
        write_torch_file(to, value);
      }
    };
    std::vector<std::string> descriptors;
    if (transforms()) {
      descriptors =
          options_.transform != nullptr ? write_by_caller(item, write_whole) : write_transformed(write_whole);
    } else if (tensor != nullptr) {
      begin += write_tensor(*tensor);
    } else {
      stream_.begin_item();
      write_whole(stream_);
      stream_.end_item();
    }
    const auto length = static_cast<std::int64_t>(stream_.position() - begin);
    // How long these get is known afterwards only.
    if (tensor == nullptr || transforms()) pace_.pass(static_cast<std::uint64_t>(length));
    return {
        item.index, length, {file_, static_cast<std::int64_t>(begin), length, std::move(descriptors), {}}};
  } catch (Error& e) {
    e.of_tensor(item.index.fqn);
    throw;
  }
}

Value ItemWriter::resolve_tensor(const WriteItem& item) {
  if (planner_.resolve_archive(item))
    throw Error(ErrorCode::kUnsupported, "only torch can say what is in this tensor")
        .of_tensor(item.index.fqn);
  Value value = planner_.resolve_data(item);
  (void)checked_tensor(value, item);
  return value;
}

WriteResult ItemWriter::write_bare(const WriteItem& item) {
  try {
    const Value value = resolve_tensor(item);
    const TensorView& tensor = value.get<Tensor>().view();
    const auto begin = static_cast<std::int64_t>(stream_.position());
    if (is_on_device(tensor)) {
      (void)write_from_device(stream_, tensor);
    } else if (tensor.is_contiguous()) {
      write_memory({tensor.data, tensor.bytes()});
    } else {
      write_elements(tensor);
    }
    const auto length = static_cast<std::int64_t>(tensor.bytes());
    return {item.index, length, {file_, begin, length, {}, {}}};
  } catch (Error& e) {
    e.of_tensor(item.index.fqn);
    throw;
  }
}

std::string ItemWriter::object_archive(const Value& value) const {
  StringSink sink;
  write_torch_file(sink, value);
  check_object(sink.text, true);
  return std::move(sink.text);
}

// What is written can be read. An archive of ours that may become much larger in memory is tried; the others
// are for Python to read.
void ItemWriter::check_object(const std::string& archive, bool is_ours) const {
  const std::uint64_t most = options_.limits.object_bytes;
  if (archive.size() > most)
    throw Error(ErrorCode::kLimit, fmt::format("an object of {} bytes, more than the {} that are read "
                                               "(Limits::object_bytes)",
                                               archive.size(), most));
  if (!is_ours || archive.size() < most / kMostUnfolding) return;
  try {
    (void)load_object(memory_source(as_bytes(archive)), options_.limits);
  } catch (const Error& e) {
    throw Error(e.code(), "the object could not be read back: " + e.message());
  }
}

// Returns the length of the padding before it.
std::uint64_t ItemWriter::write_tensor(const TensorView& tensor) {
  TensorBlob blob(tensor);
  const bool aligned = blob.data_bytes() >= kLeastAligned;
  const std::uint64_t data = stream_.position() + blob.head().size();
  const std::uint64_t padding = align_up(data, aligned ? kDirectAlignment : kSmallAlignment) - data;
  stream_.pad(padding);
  stream_.begin_item();
  stream_.append(as_bytes(blob.head()));
  stream_.begin_part();
  if (is_on_device(tensor)) {
    (void)write_from_device(stream_, stored_view(tensor, blob));
  } else if (blob.memory()) {
    write_memory(*blob.memory());
  } else {
    write_elements(tensor);
  }
  stream_.append(as_bytes(blob.tail(stream_.end_part())));
  stream_.end_item();
  return padding;
}

// A device's tensor, to somewhere else than the stream.
void ItemWriter::write_blob(ByteSink& to, const TensorView& tensor) {
  TensorBlob blob(tensor);
  to.append(as_bytes(blob.head()));
  const std::uint32_t crc = write_from_device(to, stored_view(tensor, blob));
  to.append(as_bytes(blob.tail(crc)));
}

void ItemWriter::write_memory(ByteSpan bytes) {
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(bytes.size(), pace_.piece_bytes()));
    pace_.pass(piece.size());
    stream_.append(piece);
    bytes = bytes.subspan(piece.size());
  }
}

void ItemWriter::write_elements(const TensorView& tensor) {
  if (scratch_.view().data == nullptr)
    scratch_ = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(kGather)});
  const std::uint64_t item = item_size(tensor.dtype);
  for_each_piece(
      Box::whole(tensor.shape), kGather,
      [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item; },
      [&](const Box& box) {
        const TensorView piece = tensor.narrow(box);
        pace_.pass(piece.bytes());
        copy(piece, TensorView::contiguous(scratch_.view().data, piece.dtype, piece.shape));
        stream_.append(scratch_.bytes().first(piece.bytes()));
      });
}

DeviceReader& ItemWriter::reader_of(Device device) {
  if (options_.devices == nullptr)
    throw Error(ErrorCode::kUnsupported, "the tensor is in a device's memory; stage it first");
  std::unique_ptr<DeviceReader>& reader = readers_[device.index];
  if (reader == nullptr) {
    reader = std::make_unique<DeviceReader>(options_.devices->get(), device.index,
                                            options_.devices->open_stream(device.index), options_.ring);
  }
  return *reader;
}

// Returns the bytes' CRC-32 when they do not go to the stream, which sums by itself.
std::uint32_t ItemWriter::write_from_device(ByteSink& to, const TensorView& tensor) {
  DeviceReader& reader = reader_of(tensor.device);
  const bool sums = &to != &stream_;
  std::uint32_t crc = 0;
  try {
    reader.begin(tensor);
    for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next()) {
      if (sums) {
        crc = crc32(piece, crc);
      } else {
        pace_.pass(piece.size());
      }
      to.append(piece);
    }
  } catch (...) {
    reader.drop();  // the tensor may be gone soon
    throw;
  }
  return crc;
}

std::vector<std::string> ItemWriter::write_transformed(const std::function<void(ByteSink&)>& write) {
  stream_.begin_item();
  std::vector<std::unique_ptr<ZstdSink>> sinks;
  ByteSink* outermost = &stream_;
  for (std::size_t i = 0; i < options_.transforms.size(); ++i) {
    sinks.push_back(std::make_unique<ZstdSink>(*outermost));
    outermost = sinks.back().get();
  }
  write(*outermost);
  for (auto sink = sinks.rbegin(); sink != sinks.rend(); ++sink) (*sink)->finish();
  stream_.end_item();
  return descriptors_of(options_.transforms);
}

std::vector<std::string> ItemWriter::write_by_caller(const WriteItem& item,
                                                     const std::function<void(ByteSink&)>& write) {
  stream_.begin_item();
  const auto encoder = options_.transform->encode(item, [&](ByteSpan bytes) { stream_.append(bytes); });
  EncoderSink sink(*encoder, pace_);
  write(sink);
  std::vector<std::string> descriptors = encoder->finish();
  stream_.end_item();
  return descriptors;
}

}  // namespace cairn
