// Files against the checksums of their blocks.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/seeded_hash.h"
#include "base/trial.h"
#include "cairn/tensor.h"
#include "upkeep/verify_steps.h"

namespace cairn {
namespace {

constexpr std::uint64_t kReadBytes = 4ULL << 20;  // at once

struct BadBlock {
  std::uint64_t index = 0;
  std::uint32_t crc = 0;  // of what is there now
};

// One file of the manifest, as it is found.
struct FoundFile {
  const ManifestFile* written = nullptr;
  std::uint64_t readable = 0;  // bytes in whole blocks that can be checked
  std::mutex mutex;
  std::vector<BadBlock> bad;
};

class BlockCheck {
 public:
  BlockCheck(const FileSystem& files, const DcpPart& part, const ItemsByFile& items, Findings& findings)
      : files_(files), manifest_(*part.manifest), items_(items), findings_(findings) {}

  void run() {
    look_at_sizes();
    read_all();
    for (FoundFile& file : found_) report(file);
  }

 private:
  // Several blocks that are read in one go.
  struct BlockRange {
    FoundFile* file;
    std::uint64_t offset;
  };
  // What a thread keeps from piece to piece.
  struct Reader {
    std::optional<Tensor> buffer;
    const FoundFile* of = nullptr;
    std::shared_ptr<const ByteSource> source;
  };

  std::uint64_t piece_bytes() const { return std::max(kReadBytes, manifest_.block_size); }

  void look_at_sizes() {
    found_ = std::vector<FoundFile>(manifest_.files.size());
    for (std::size_t i = 0; i < found_.size(); ++i) {
      found_[i].written = &manifest_.files[i];
      look_at_size(found_[i]);
      findings_.expect(found_[i].readable);
      for (std::uint64_t at = 0; at < found_[i].readable; at += piece_bytes())
        pieces_.push_back({&found_[i], at});
    }
  }

  void look_at_size(FoundFile& file) {
    const std::string& name = file.written->name;
    const std::uint64_t written = file.written->size;
    try {
      const std::uint64_t size = files_.open(name)->size();
      file.readable = size >= written ? written : size / manifest_.block_size * manifest_.block_size;
      if (size < written) {
        const auto lost = items_.touching(name, size, written);
        find(ProblemKind::kShort, name, size,
             fmt::format("has {} bytes, {} were written; lost: {}", size, written,
                         names_of(items_.storage(), lost)));
      } else if (size > written) {
        find(ProblemKind::kLong, name, written, fmt::format("has {} bytes, {} were written", size, written));
      }
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) return findings_.add_unreadable(name, e);
      find(ProblemKind::kMissing, name, std::nullopt,
           fmt::format("missing; it holds {}", names_of(items_.storage(), items_.of(name))));
    }
  }

  void read_all() {
    const std::uint64_t budget = findings_.options().memory_budget;
    if (piece_bytes() > budget) {
      throw Error(ErrorCode::kLimit, fmt::format("blocks of {} bytes do not fit into the memory budget of {}",
                                                 piece_bytes(), budget));
    }
    const auto fitting = static_cast<int>(std::min<std::uint64_t>(budget / piece_bytes(), 1024));
    const int threads = std::min(findings_.threads(), fitting);
    std::vector<Reader> readers(static_cast<std::size_t>(threads));
    for_each_in_parallel(pieces_.size(), threads, [&](std::size_t i, int thread) {
      check(pieces_[i], readers[static_cast<std::size_t>(thread)]);
    });
  }

  void check(const BlockRange& piece, Reader& reader) {
    const std::uint64_t size = std::min(piece_bytes(), piece.file->readable - piece.offset);
    const std::string& name = piece.file->written->name;
    try {
      if (!reader.buffer)
        reader.buffer = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(piece_bytes())});
      if (reader.of != piece.file) {
        reader.source = files_.open(name);
        reader.of = piece.file;
      }
      const auto bytes = reader.buffer->bytes().first(size);
      reader.source->read_at(piece.offset, bytes);
      compare(piece, bytes);
      findings_.add_checked(size);
    } catch (const Error& e) {
      findings_.add_unreadable(name, Error(e).at(piece.offset));
    }
    findings_.pass(size);
  }

  void compare(const BlockRange& piece, ByteSpan bytes) const {
    const ManifestFile& written = *piece.file->written;
    std::uint64_t index = piece.offset / manifest_.block_size;
    for (; !bytes.empty(); ++index) {
      const ByteSpan block = bytes.first(std::min<std::uint64_t>(bytes.size(), manifest_.block_size));
      bytes = bytes.subspan(block.size());
      const std::uint32_t crc = crc32(block);
      const bool strong = !written.block_hashes.empty();
      if (crc == written.block_crcs[index] && (!strong || xxh3_128(block) == written.block_hashes[index]))
        continue;
      const std::lock_guard lock(piece.file->mutex);
      piece.file->bad.push_back({index, crc});
    }
  }

  // --- what was found, in terms of tensors ---

  // What is known of the items of one file. Several may be in one place.
  struct Damage {
    std::map<std::pair<std::int64_t, std::int64_t>, bool> places;  // offset, length
    std::set<std::uint32_t> rows;                                  // told
  };

  void report(FoundFile& file) {
    std::sort(file.bad.begin(), file.bad.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    Damage damaged;
    for (std::size_t i = 0; i < file.bad.size();) {
      std::size_t end = i + 1;
      while (end < file.bad.size() && file.bad[end].index == file.bad[end - 1].index + 1) ++end;
      report_run(*file.written, std::span(file.bad).subspan(i, end - i), damaged);
      i = end;
    }
  }

  // Bad blocks side by side: one problem for each item that they damage, or one for the bytes between items.
  void report_run(const ManifestFile& file, std::span<const BadBlock> run, Damage& damaged) {
    const std::uint64_t begin = run.front().index * manifest_.block_size;
    const std::uint64_t end = std::min(file.size, (run.back().index + 1) * manifest_.block_size);
    const std::string origin = origin_of(file, run);
    const ProblemKind kind = origin.empty() ? ProblemKind::kFlipped : ProblemKind::kSwapped;
    const std::string text =
        fmt::format("wrong checksum of the {} bytes from {} on{}", end - begin, begin, origin);
    bool told = false;
    for (const std::uint32_t row : items_.touching(file.name, begin, end)) {
      const std::pair place(items_.storage().offset(row), items_.storage().length(row));
      const auto [known, unread] = damaged.places.emplace(place, false);
      if (unread) known->second = is_damaged(file, row);
      told = told || known->second;
      if (!known->second || !damaged.rows.insert(row).second) continue;
      const auto offset = static_cast<std::uint64_t>(std::max<std::int64_t>(0, items_.storage().offset(row)));
      findings_.add({kind, file.name, std::string(items_.storage().fqn(row)), std::max(begin, offset), text});
    }
    if (!told) find(kind, file.name, begin, text);
  }

  // The item's own checksum tells it from its neighbours in the block.
  bool is_damaged(const ManifestFile& file, std::uint32_t row) const {
    const auto offset = static_cast<std::uint64_t>(items_.storage().offset(row));
    const auto length = static_cast<std::uint64_t>(items_.storage().length(row));
    const ManifestItem* item = find_item(file, offset, length);
    if (item == nullptr) return true;
    try {
      const auto source = files_.open(file.name);
      Tensor buffer = Tensor::empty(
          DType::kUInt8, {static_cast<std::int64_t>(std::clamp<std::uint64_t>(length, 1, kReadBytes))});
      std::uint32_t crc = 0;
      for (std::uint64_t at = 0; at < length;) {
        const auto bytes = buffer.bytes().first(std::min<std::uint64_t>(buffer.bytes().size(), length - at));
        source->read_at(offset + at, bytes);
        crc = crc32(bytes, crc);
        at += bytes.size();
      }
      return crc != item->crc;
    } catch (const Error&) {
      return true;
    }
  }

  // ": they belong to ...", when every block of the run is found elsewhere in the checkpoint.
  std::string origin_of(const ManifestFile& file, std::span<const BadBlock> run) {
    if (by_crc_.empty()) {
      for (const ManifestFile& f : manifest_.files)
        for (std::size_t b = 0; b < f.block_crcs.size(); ++b) by_crc_.emplace(f.block_crcs[b], Place{&f, b});
    }
    std::string first;
    for (const BadBlock& block : run) {
      const auto found = by_crc_.find(block.crc);
      if (found == by_crc_.end()) return "";
      const auto [of, index] = found->second;
      if (length_of(*of, index) != length_of(file, block.index)) return "";
      if (first.empty())
        first = fmt::format(": they belong to {} at byte {}", of->name, index * manifest_.block_size);
    }
    return first;
  }

  std::uint64_t length_of(const ManifestFile& file, std::uint64_t block) const {
    return std::min(manifest_.block_size, file.size - block * manifest_.block_size);
  }

  void find(ProblemKind kind, const std::string& file, std::optional<std::uint64_t> offset,
            std::string text) {
    findings_.add({kind, file, "", offset, std::move(text)});
  }

  struct Place {
    const ManifestFile* file;
    std::uint64_t block;
  };

  const FileSystem& files_;
  const Manifest& manifest_;
  const ItemsByFile& items_;
  Findings& findings_;
  std::vector<FoundFile> found_;
  std::vector<BlockRange> pieces_;
  struct CrcHash {
    std::size_t operator()(std::uint32_t crc) const { return mix_hash(kHashSeed.start, crc); }
  };
  std::unordered_map<std::uint32_t, Place, CrcHash> by_crc_;  // made when something is bad
};

}  // namespace

void check_blocks(const FileSystem& files, const DcpPart& part, const ItemsByFile& items,
                  Findings& findings) {
  BlockCheck(files, part, items, findings).run();
  const auto& all = part.manifest->files;
  const bool described = std::any_of(
      all.begin(), all.end(), [&](const ManifestFile& file) { return file.name == part.metadata_file; });
  if (!described)
    findings.add_unchecked("the manifest has no checksum of the description", part.metadata_bytes);
}

}  // namespace cairn
