// Zip archives: every record of every archive that is accepted is read, and the archive written anew.
// Modes "deflate" and "strict-crc" read with that option.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/source.h"
#include "format/zip.h"
#include "fuzz.h"

namespace cairn::fuzz {

namespace {

constexpr std::uint64_t kRecordBytes = 1 << 20;

struct Record {
  std::string name;  // without the top folder
  std::string bytes;
  bool operator==(const Record&) const = default;
};

std::vector<Record> records_of(const ZipReader& zip) {
  std::vector<Record> records;
  for (const ZipEntry& entry : zip.entries()) {
    const std::string name = entry.name.substr(zip.top_folder().size() + 1);
    require(zip.find(name) == &entry, "a record is found by its name");
    zip.verify(entry);
    records.push_back({name, zip.read(entry, kRecordBytes)});
    require(records.back().bytes.size() == entry.size, "a record has the size it declares");
  }
  return records;
}

std::vector<Record> read_records(ByteSpan input, ZipOptions options, const Limits& limits) {
  options.max_entries = limits.zip_entries;
  const ZipReader zip(memory_source(input), options, limits);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const ZipEntry& entry : zip.entries()) places.emplace_back(entry.data_offset, entry.stored_size);
  std::sort(places.begin(), places.end());
  std::uint64_t end = 0;
  for (const auto& [offset, size] : places) {
    require(offset >= end && offset <= input.size() && size <= input.size() - offset,
            "records lie inside the file and do not overlap");
    end = offset + size;
  }
  return records_of(zip);
}

// With deflate allowed, everything the plain reader takes is taken, and a little more.
bool accepted_with_deflate(ByteSpan input, const Limits& limits) {
  try {
    read_records(input, {.allow_deflate = true}, limits);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string write_records(const std::vector<Record>& records) {
  StringSink sink;
  ZipWriter writer(sink);
  for (const Record& record : records) writer.add(record.name, as_bytes(record.bytes));
  writer.finish();
  return sink.text;
}

}  // namespace

void run(ByteSpan input, const Limits& limits) {
  const bool with_deflate = accepted_with_deflate(input, limits);
  const ZipOptions options{.allow_deflate = mode_is("deflate"), .strict_crc = mode_is("strict-crc")};
  const std::vector<Record> records = read_records(input, options, limits);
  require(with_deflate, "allowing deflate refuses nothing");
  Limits wider = limits;  // the new top folder may be longer than the old one
  wider.zip_name_bytes += 16;
  const std::string once = write_records(records);
  const std::vector<Record> again =
      must("a written archive reads back", [&] { return read_records(as_bytes(once), {}, wider); });
  require(again == records, "records are the same after writing and reading");
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
