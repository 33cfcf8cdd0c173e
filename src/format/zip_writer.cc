#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/hash.h"
#include "format/names.h"
#include "format/zip.h"
#include "format/zip_format.h"

namespace cairn {
namespace {

using namespace zip;

constexpr std::uint64_t kMostAlignment = 32768;  // padding must fit the 16-bit length of an extra field
constexpr std::uint16_t kVersionMadeBy = 0x031e;
constexpr std::uint16_t kVersionNeeded = 45;  // zip64

std::uint32_t saturate32(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, kSaturated32));
}

bool is_wide(std::uint64_t value) { return value >= kSaturated32; }

// The zip64 extra field of a record, nothing when it needs none. In a local header, which is written before
// the data, torch says 0 for the stored size.
void push_zip64(std::string& text, std::uint64_t size, std::uint64_t stored_size,
                std::uint64_t header_offset) {
  const int numbers = (is_wide(size) ? 2 : 0) + (is_wide(header_offset) ? 1 : 0);
  if (numbers == 0) return;
  put<std::uint16_t>(text, kZip64Extra);
  put<std::uint16_t>(text, static_cast<std::uint16_t>(8 * numbers));
  if (is_wide(size)) {
    put<std::uint64_t>(text, size);
    put<std::uint64_t>(text, stored_size);
  }
  if (is_wide(header_offset)) put<std::uint64_t>(text, header_offset);
}

// torch gives empty records no descriptor.
std::uint16_t flags_for(std::uint64_t size) {
  return size == 0 ? kFlagUtf8 : static_cast<std::uint16_t>(kFlagUtf8 | kFlagDescriptor);
}

Error zip_misuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

}  // namespace

ZipWriter::ZipWriter(ByteSink& sink, std::string top_folder, std::uint64_t alignment)
    : sink_(sink), top_folder_(std::move(top_folder)), alignment_(alignment) {
  if (alignment == 0 || alignment > kMostAlignment) {
    throw zip_misuse(fmt::format("records cannot be aligned to {} bytes; 1 to {} are possible", alignment,
                                 kMostAlignment));
  }
  if (top_folder_.find('/') != std::string::npos) {
    throw zip_misuse(fmt::format("the top folder '{}' of an archive must not contain '/'", top_folder_));
  }
}

void ZipWriter::add(std::string_view name, ByteSpan bytes) {
  begin(name, bytes.size());
  append(bytes);
  end();
}

void ZipWriter::begin(std::string_view name, std::uint64_t size, bool sum) {
  if (state_ != State::kBetween)
    throw zip_misuse("a record begins inside another, or after the end of the archive");
  Record record{top_folder_ + "/", position_, size, 0};
  record.name += name;
  if (const char* problem = find_name_problem(record.name)) {
    throw zip_misuse(fmt::format("an archive cannot hold a record named '{}': {}", record.name, problem));
  }
  if (record.name.size() > Limits().zip_name_bytes) {
    throw zip_misuse(fmt::format("a record's name has {} bytes, more than the {} allowed", record.name.size(),
                                 Limits().zip_name_bytes));
  }
  checked_add(position_, checked_add<std::uint64_t>(size, 2 * kMostAlignment));
  put_local_header(record);
  records_.push_back(std::move(record));
  state_ = sum ? State::kSumming : State::kNotSumming;
  remaining_ = size;
  crc_ = 0;
}

void ZipWriter::append(ByteSpan bytes) {
  if (state_ != State::kSumming && state_ != State::kNotSumming)
    throw zip_misuse("there is no record to append to");
  if (bytes.size() > remaining_) {
    throw zip_misuse(fmt::format("the record '{}' gets more than the {} bytes announced",
                                 records_.back().name, records_.back().size));
  }
  if (bytes.empty()) return;
  if (state_ == State::kSumming) crc_ = crc32(bytes, crc_);
  emit(bytes);
  remaining_ -= bytes.size();
}

void ZipWriter::skip(std::uint64_t bytes) {
  if (state_ != State::kNotSumming || bytes > remaining_) throw zip_misuse("there is nothing to skip");
  remaining_ -= bytes;
  position_ += bytes;
}

void ZipWriter::end() {
  if (state_ == State::kNotSumming)
    throw zip_misuse("a record that is not summed must end with its checksum");
  end_with_crc(crc_);
}

void ZipWriter::end_with_crc(std::uint32_t crc) {
  if (state_ != State::kSumming && state_ != State::kNotSumming)
    throw zip_misuse("there is no record to end");
  Record& record = records_.back();
  if (remaining_ != 0) {
    throw zip_misuse(
        fmt::format("the record '{}' lacks {} of its {} bytes", record.name, remaining_, record.size));
  }
  state_ = State::kBetween;
  record.crc = record.size == 0 ? 0 : crc;
  if (record.size == 0) return;
  scratch_.clear();
  put(scratch_, kDescriptorSignature);
  put(scratch_, record.crc);
  if (is_wide(record.size) || is_wide(record.header_offset)) {
    put(scratch_, record.size);
    put(scratch_, record.size);
  } else {
    put(scratch_, static_cast<std::uint32_t>(record.size));
    put(scratch_, static_cast<std::uint32_t>(record.size));
  }
  emit(as_bytes(scratch_));
}

std::uint64_t ZipWriter::finish() {
  if (state_ != State::kBetween) throw zip_misuse("the archive ends inside a record, or twice");
  if (records_.empty()) throw zip_misuse("an archive needs at least one record");
  const auto twice =
      find_duplicate(records_.size(), [&](std::size_t i) { return std::string_view(records_[i].name); });
  if (twice) throw zip_misuse(fmt::format("the archive has two records '{}'", records_[*twice].name));
  const std::uint64_t directory_offset = position_;
  for (const Record& record : records_) put_central_header(record);
  put_end_records(directory_offset);
  state_ = State::kFinished;
  return position_;
}

void ZipWriter::emit(ByteSpan bytes) {
  sink_.append(bytes);
  position_ += bytes.size();
}

void ZipWriter::put_local_header(const Record& record) {
  scratch_.clear();
  put(scratch_, kLocalSignature);
  put<std::uint16_t>(scratch_, 0);  // version needed
  put(scratch_, flags_for(record.size));
  put(scratch_, kStored);
  put<std::uint32_t>(scratch_, 0);  // time and date
  put<std::uint32_t>(scratch_, 0);  // CRC and both sizes: see the descriptor
  put<std::uint64_t>(scratch_, 0);
  put(scratch_, static_cast<std::uint16_t>(record.name.size()));
  const std::size_t extra_length_at = scratch_.size();
  put<std::uint16_t>(scratch_, 0);
  scratch_ += record.name;
  push_zip64(scratch_, record.size, 0, record.header_offset);
  const std::uint64_t past_data_start = (position_ + scratch_.size() + 4) % alignment_;
  const std::uint64_t padding = past_data_start == 0 ? 0 : alignment_ - past_data_start;
  put(scratch_, kPaddingExtra);
  put(scratch_, static_cast<std::uint16_t>(padding));
  scratch_.append(padding, 'Z');
  const std::size_t extra_bytes = scratch_.size() - kLocalBytes - record.name.size();
  store(scratch_.data() + extra_length_at, static_cast<std::uint16_t>(extra_bytes));
  emit(as_bytes(scratch_));
}

void ZipWriter::put_central_header(const Record& record) {
  std::string extra;
  push_zip64(extra, record.size, record.size, record.header_offset);
  scratch_.clear();
  put(scratch_, kCentralSignature);
  put<std::uint32_t>(scratch_, 0);  // version made by, version needed
  put(scratch_, flags_for(record.size));
  put(scratch_, kStored);
  put<std::uint32_t>(scratch_, 0);  // time and date
  put(scratch_, record.crc);
  put(scratch_, saturate32(record.size));  // stored
  put(scratch_, saturate32(record.size));
  put(scratch_, static_cast<std::uint16_t>(record.name.size()));
  put(scratch_, static_cast<std::uint16_t>(extra.size()));
  put<std::uint16_t>(scratch_, 0);  // comment length
  put<std::uint16_t>(scratch_, 0);  // disk
  put<std::uint16_t>(scratch_, 0);  // internal attributes
  put<std::uint32_t>(scratch_, 0);  // external attributes
  put(scratch_, saturate32(record.header_offset));
  scratch_ += record.name;
  scratch_ += extra;
  emit(as_bytes(scratch_));
}

void ZipWriter::put_end_records(std::uint64_t directory_offset) {
  const std::uint64_t count = records_.size();
  const std::uint64_t end64_offset = position_;
  const std::uint64_t directory_size = end64_offset - directory_offset;
  const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kSaturated16));
  scratch_.clear();
  put(scratch_, kEnd64Signature);
  put<std::uint64_t>(scratch_, kEnd64Bytes - 12);
  put(scratch_, kVersionMadeBy);
  put(scratch_, kVersionNeeded);
  put<std::uint64_t>(scratch_, 0);  // this disk, the directory's disk
  put(scratch_, count);
  put(scratch_, count);
  put(scratch_, directory_size);
  put(scratch_, directory_offset);

  put(scratch_, kLocatorSignature);
  put<std::uint32_t>(scratch_, 0);  // disk of the zip64 end record
  put(scratch_, end64_offset);
  put<std::uint32_t>(scratch_, 1);  // disks

  put(scratch_, kEndSignature);
  put<std::uint32_t>(scratch_, 0);  // this disk, the directory's disk
  put(scratch_, short_count);
  put(scratch_, short_count);
  put(scratch_, saturate32(directory_size));
  put(scratch_, saturate32(directory_offset));
  put<std::uint16_t>(scratch_, 0);  // comment length
  emit(as_bytes(scratch_));
}

}  // namespace cairn
