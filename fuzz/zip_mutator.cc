// Changes zip archives record by record, so that most of what libFuzzer tries gets past the first check.
//
// An archive is taken apart loosely (zip_parts.h). Records are renamed, copied, dropped, reordered, filled
// anew (data.pkl by the pickle mutator), compressed, given other flags, extra fields, descriptors and zip64
// blocks; sizes, checksums, offsets and the directory are then made right again. In half of the cases a field
// or two is made to lie after that, or bytes are put where none belong.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "mutate.h"
#include "zip_parts.h"

namespace cairn::fuzz {
namespace {

class Mutator {
 public:
  Mutator(ZipParts& zip, Random& random) : zip_(zip), random_(random) {}

  void change() {
    if (zip_.records.empty()) zip_.records.emplace_back();
    ZipPart& record = one();
    switch (below(12)) {
      case 0: return rename(record);
      case 1: return fill(record);
      case 2: return zip_.records.insert(zip_.records.begin() + place(), ZipPart(record)), void();
      case 3: return drop();
      case 4: return std::swap(record, one());
      case 5: record.flags = static_cast<std::uint16_t>(record.flags ^ 1U << below(16)); return;
      case 6: record.descriptor = !record.descriptor; return;
      case 7: return extra(record);
      case 8: record.local_wide = static_cast<std::uint8_t>(below(4)); return;
      case 9: record.central_wide = static_cast<std::uint8_t>(below(8)); return;
      case 10: return compress(record);
      default: return ends(record);
    }
  }

  // A number of the finished archive that is not what it should be.
  void lie(std::string& archive) {
    const ZipField field = zip_.fields[below(zip_.fields.size())];
    if (field.at + field.bytes > archive.size()) return;
    std::uint64_t value = 0;
    std::memcpy(&value, archive.data() + field.at, field.bytes);
    static constexpr std::uint64_t kValues[] = {0, 1, 0xffff, 0xffffffff, ~0ULL, 1ULL << 63, 8};
    switch (below(4)) {
      case 0: value = kValues[below(std::size(kValues))]; break;
      case 1: value += below(2) == 0 ? 1 : ~0ULL; break;
      case 2: value ^= 1ULL << below(8 * field.bytes); break;
      default: {
        const ZipField other = zip_.fields[below(zip_.fields.size())];
        value = 0;
        std::memcpy(&value, archive.data() + other.at, other.bytes);
      }
    }
    std::memcpy(archive.data() + field.at, &value, field.bytes);
  }

 private:
  std::size_t below(std::size_t n) { return fuzz::below(random_, n); }
  ZipPart& one() { return zip_.records[below(zip_.records.size())]; }
  std::ptrdiff_t place() { return static_cast<std::ptrdiff_t>(below(zip_.records.size() + 1)); }

  void drop() {
    zip_.records.erase(zip_.records.begin() + static_cast<std::ptrdiff_t>(below(zip_.records.size())));
  }

  void rename(ZipPart& record) {
    static constexpr std::string_view kNames[] = {
        "data.pkl",
        "data/0",
        "data/1",
        "version",
        "byteorder",
        ".format_version",
        ".data/serialization_id",
        "code/a.py",
        "constants.pkl",
        "../x",
        "/x",
        "",
        "a\\b",
        "data/0/",
        "./a",
        "\xc3\xa9",
        "\xff",
    };
    const std::size_t slash = record.name.find('/');
    const std::string top = slash == std::string::npos ? "archive/" : record.name.substr(0, slash + 1);
    if (below(3) == 0) return mutate_bytes(record.name, 96);
    record.name = (below(8) == 0 ? "other/" : top) + std::string(kNames[below(std::size(kNames))]);
    if (below(8) == 0) record.name = std::string(kNames[below(std::size(kNames))]);
  }

  void fill(ZipPart& record) {
    static constexpr std::string_view kTexts[] = {"3\n", "little", "big", "1", "10", "11", "-1", "x"};
    if (record.method != 0) return;
    const std::size_t end = record.name.rfind('/') + 1;  // 0 where there is none
    const bool pickle = record.name.substr(end) == "data.pkl" && mutate_pickle(record.data, random_);
    if (!pickle && below(4) == 0)
      record.data = std::string(kTexts[below(std::size(kTexts))]);
    else if (!pickle)
      mutate_bytes(record.data);
  }

  void extra(ZipPart& record) {
    std::string& field = below(2) == 0 ? record.local_extra : record.central_extra;
    switch (below(4)) {
      case 0: record.padded = !record.padded; return;
      case 1: field.clear(); return;
      case 2: field += std::string("\x55\x54\x01\x00\x07", 5); return;  // a time, as Info-ZIP writes it
      default: return mutate_bytes(field, 64);
    }
  }

  void compress(ZipPart& record) {
    if (record.method != 0) return;
    if (below(4) == 0) {
      record.method = static_cast<std::uint16_t>(below(16));
      return;
    }
    z_stream stream{};
    if (deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) return;
    record.size = record.data.size();
    record.crc = crc_of(record.data);
    std::string out(deflateBound(&stream, record.data.size()) + 16, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(record.data.data());
    stream.avail_in = static_cast<uInt>(record.data.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(out.size() - stream.avail_out);
    deflateEnd(&stream);
    record.data = std::move(out);
    record.method = 8;
  }

  // What comes at the end of the archive, or between records.
  void ends(ZipPart& record) {
    switch (below(6)) {
      case 0: zip_.zip64 = !zip_.zip64; return;
      case 1: zip_.saturated = !zip_.saturated; return;
      case 2: record.no_crc = !record.no_crc; return;
      case 3: return mutate_bytes(record.gap, 32);
      case 4: return mutate_bytes(zip_.comment, 32);
      default: return std::swap(record.name, one().name);
    }
  }

  ZipParts& zip_;
  Random& random_;
};

}  // namespace

bool mutate_zip(std::string& archive, Random& random) {
  ZipParts zip;
  if (!zip.take_apart(archive)) return false;
  Mutator mutator(zip, random);
  for (std::size_t changes = 1 + below(random, 3); changes > 0; --changes) mutator.change();
  archive = zip.put_together();
  if (below(random, 2) == 0) return true;
  for (std::size_t lies = 1 + below(random, 2); lies > 0; --lies) mutator.lie(archive);
  return true;
}

}  // namespace cairn::fuzz
