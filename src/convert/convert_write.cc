#include "convert/convert_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "base/parallel.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "format/hf_names.h"
#include "reading/joined_sum.h"
#include "save/space.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

// A window is what one thread fills and writes at a time. In memory it had better stay in the processor's
// cache; a disk wants large writes.
constexpr std::uint64_t kMemoryWindow = 1U << 20;
constexpr std::uint64_t kDiskWindow = 4U << 20;
constexpr int kLeastThreads = 4, kMostThreads = 16;

// The sums of the segments of one file, as far as they are known.
class SegmentSums {
 public:
  explicit SegmentSums(const FileLayout& layout) : layout_(layout), sums_(layout.segments.size()) {}

  // Bytes `begin` to `begin + bytes` of the segment have passed. Returns the segment's sum when that was all.
  std::optional<std::uint32_t> add(std::size_t segment, std::uint64_t begin, ByteSpan bytes) {
    const std::uint32_t crc = crc32(bytes);
    const std::uint64_t size = layout_.segments[segment].bytes;
    const std::lock_guard lock(mutex_);
    if (bytes.size() == size) return sums_[segment] = crc;
    JoinedSum& sum = open_[segment];
    sum.add(begin, begin + bytes.size(), crc);
    const std::optional<std::uint32_t> whole = sum.whole(size);
    if (!whole) return whole;
    open_.erase(segment);
    return sums_[segment] = *whole;
  }
  const std::vector<std::uint32_t>& all() const { return sums_; }

 private:
  const FileLayout& layout_;
  std::vector<std::uint32_t> sums_;  // by segment
  std::mutex mutex_;
  std::unordered_map<std::size_t, JoinedSum> open_;
};

struct OutputFile {
  OutputFile(FileLayout& planned, std::unique_ptr<FileWriter> created)
      : layout(planned), writer(std::move(created)), sums(planned) {}
  FileLayout& layout;
  std::unique_ptr<FileWriter> writer;
  SegmentSums sums;
};

class OutputWriter {
 public:
  OutputWriter(FileSystem& to, OutputLayout& layout, const std::vector<ConvertEntry>& entries,
               const CheckpointSource& source, const ConvertOptions& options)
      : to_(to), entries_(entries), source_(source), options_(options) {
    for (FileLayout& file : layout.files) {
      files_.push_back(std::make_unique<OutputFile>(file, create(file)));
      total_ = checked_add(total_, file.bytes);
    }
    CAIRN_POINT("convert.files_created");
    const bool disk = !files_.empty() && files_.front()->writer->prefers_alignment();
    window_ = disk ? kDiskWindow : kMemoryWindow;
    threads_ = convert_threads(options, window_ + kReadBuffer);
    buffers_.resize(static_cast<std::size_t>(threads_));
  }

  WrittenFiles run() {
    for_each_window("convert", [this](OutputFile& file, std::uint64_t offset, std::span<std::byte> buffer) {
      fill_and_write(file, offset, buffer);
    });
    CAIRN_POINT("convert.before_finish");
    for (const auto& file : files_) finish(*file);
    CAIRN_POINT("convert.before_read_back");
    if (options_.verify) read_back();
    CAIRN_POINT("convert.before_commit");
    commit();
    return written_;
  }

 private:
  // A file that gets no room is refused before its first byte: the tensor is named at which the room would
  // end.
  std::unique_ptr<FileWriter> create(const FileLayout& file) const {
    try {
      return to_.create(file.name, {file.bytes, options_.overwrite, options_.durable});
    } catch (Error& e) {
      if (is_full(e)) name_tensor(file, to_.free_space().value_or(0), e);
      throw;
    }
  }

  using Window = std::function<void(OutputFile& file, std::uint64_t offset, std::span<std::byte> buffer)>;

  void for_each_window(std::string_view phase, const Window& work) {
    std::vector<std::uint64_t> ends;  // windows up to and with each file
    for (const auto& file : files_)
      ends.push_back((ends.empty() ? 0 : ends.back()) + (file->layout.bytes + window_ - 1) / window_);
    std::atomic<std::uint64_t> done = 0;
    for_each_in_parallel(ends.empty() ? 0 : ends.back(), threads_, [&](std::size_t i, int thread) {
      if (options_.cancelled != nullptr && *options_.cancelled)
        throw Error(ErrorCode::kCancelled, "the conversion was cancelled");
      const auto at = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
      OutputFile& file = *files_[at];
      const std::uint64_t offset = (i - (at == 0 ? 0 : ends[at - 1])) * window_;
      const std::uint64_t bytes = std::min(window_, file.layout.bytes - offset);
      work(file, offset, buffer_of(thread).first(bytes));
      report(phase, done += bytes);
    });
  }

  std::span<std::byte> buffer_of(int thread) {
    Tensor& buffer = buffers_[static_cast<std::size_t>(thread)];
    if (buffer.view().data == nullptr)
      buffer = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(window_)});
    return buffer.bytes();
  }

  void report(std::string_view phase, std::uint64_t done) {
    if (!options_.progress) return;
    const std::lock_guard lock(progress_);
    options_.progress({phase, done, total_});
  }

  // Calls each(segment, begin, bytes) for the parts of segments that lie in the window.
  template <class Each>
  static void for_each_part(const FileLayout& layout, std::uint64_t offset, std::span<std::byte> window,
                            const Each& each) {
    const auto after = std::upper_bound(layout.segments.begin(), layout.segments.end(), offset,
                                        [](std::uint64_t at, const Segment& s) { return at < s.offset; });
    const std::uint64_t end = offset + window.size();
    for (auto s = std::prev(after); s != layout.segments.end() && s->offset < end; ++s) {
      const std::uint64_t begin = std::max(offset, s->offset);
      const std::uint64_t until = std::min(end, s->offset + s->bytes);
      if (until > begin)
        each(static_cast<std::size_t>(s - layout.segments.begin()), begin - s->offset,
             window.subspan(begin - offset, until - begin));
    }
  }

  void fill_and_write(OutputFile& file, std::uint64_t offset, std::span<std::byte> window) {
    for_each_part(file.layout, offset, window,
                  [&](std::size_t at, std::uint64_t begin, std::span<std::byte> to) {
                    const Segment& segment = file.layout.segments[at];
                    switch (segment.kind) {
                      case Segment::Kind::kFixed:
                        std::memcpy(to.data(), file.layout.fixed[segment.index].data() + begin, to.size());
                        return;
                      case Segment::Kind::kTensor: fill_tensor(entries_[segment.index], begin, to); break;
                      case Segment::Kind::kRaw: {
                        const RawStorage& raw = file.layout.raw[segment.index];
                        raw.source->read_at(raw.offset + begin, to);
                      }
                    }
                    const std::optional<std::uint32_t> sum = file.sums.add(at, begin, to);
                    if (sum && segment.kind == Segment::Kind::kRaw)
                      check_source(file.layout.raw[segment.index], *sum);
                  });
    write(file, offset, window);
  }

  void write(OutputFile& file, std::uint64_t offset, ByteSpan bytes) const {
    try {
      file.writer->write_at(offset, bytes);
    } catch (Error& e) {
      name_tensor(file.layout, e.offset().value_or(offset), e);
      throw;
    }
  }

  // Of the first tensor that is not whole when the file ends at the offset; the last one when only what
  // follows them all is missing.
  void name_tensor(const FileLayout& layout, std::uint64_t offset, Error& e) const {
    const Segment* found = nullptr;
    for (const Segment& segment : layout.segments) {
      if (segment.entry == Segment::kNoEntry) continue;
      found = &segment;
      if (segment.offset + segment.bytes > offset) break;
    }
    if (found != nullptr) e.of_tensor(entries_[found->entry].from);
  }

  void check_source(const RawStorage& raw, std::uint32_t sum) {
    if (raw.crc == 0) return;
    if (raw.crc != sum) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("the storage's CRC-32 is {:08x}, the archive says {:08x}", sum, raw.crc))
          .in_file(raw.source->name())
          .at(raw.offset);
    }
    source_checked_ += raw.bytes;
  }

  // A window may begin or end in the middle of an element.
  void fill_tensor(const ConvertEntry& entry, std::uint64_t begin, std::span<std::byte> to) const {
    const std::uint64_t item = item_size(entry.dtype);
    if (const std::uint64_t past = begin % item; past != 0) {
      const std::size_t count = std::min<std::uint64_t>(item - past, to.size());
      fill_element_part(entry, begin / item, past, to.first(count));
      begin += count;
      to = to.subspan(count);
    }
    const std::size_t whole = to.size() / item * item;
    const auto first = static_cast<std::int64_t>(begin / item);
    fill_elements(entry, first, to.first(whole));
    if (whole < to.size()) fill_element_part(entry, (begin + whole) / item, 0, to.subspan(whole));
  }

  void fill_element_part(const ConvertEntry& entry, std::uint64_t at, std::uint64_t past,
                         std::span<std::byte> to) const {
    std::byte element[16];
    fill_elements(entry, static_cast<std::int64_t>(at), std::span(element).first(item_size(entry.dtype)));
    std::memcpy(to.data(), element + past, to.size());
  }

  void fill_elements(const ConvertEntry& entry, std::int64_t first, std::span<std::byte> to) const {
    const auto item = static_cast<std::int64_t>(item_size(entry.dtype));
    const auto count = static_cast<std::int64_t>(to.size()) / item;
    for_each_box(entry.shape, first, first + count, [&](const Box& box, std::int64_t at) {
      const TensorView view = TensorView::contiguous(to.data() + (at - first) * item, entry.dtype, box.sizes);
      source_.checkpoint().read_into(*entry.tensor, selection_of(box), view);
    });
  }

  // Headers that hold checksums get them now.
  void finish(OutputFile& file) const {
    FileLayout& layout = file.layout;
    if (!layout.finish) return;
    std::vector<std::string> fixed = layout.finish(file.sums.all());
    for (const Segment& segment : layout.segments) {
      if (segment.kind != Segment::Kind::kFixed || fixed[segment.index] == layout.fixed[segment.index])
        continue;
      write(file, segment.offset, as_bytes(fixed[segment.index]));
    }
    layout.fixed = std::move(fixed);
  }

  void read_back() {
    std::vector<std::unique_ptr<SegmentSums>> sums;
    std::unordered_map<const OutputFile*, SegmentSums*> sums_of;
    for (const auto& file : files_) {
      sums.push_back(std::make_unique<SegmentSums>(file->layout));
      sums_of[file.get()] = sums.back().get();
    }
    std::atomic<std::uint64_t> compared = 0;
    for_each_window("verify", [&](OutputFile& file, std::uint64_t offset, std::span<std::byte> buffer) {
      if (!file.writer->read_back(offset, buffer)) return;
      for_each_part(
          file.layout, offset, buffer, [&](std::size_t at, std::uint64_t begin, std::span<std::byte> got) {
            const Segment& segment = file.layout.segments[at];
            bool same = true;
            if (segment.kind == Segment::Kind::kFixed) {
              same =
                  std::memcmp(file.layout.fixed[segment.index].data() + begin, got.data(), got.size()) == 0;
            } else if (const auto sum = sums_of.at(&file)->add(at, begin, got)) {
              same = *sum == file.sums.all()[at];
            }
            if (!same) fail_read_back(file, segment);
          });
      compared += buffer.size();
    });
    written_.read_back = compared;
  }

  [[noreturn]] void fail_read_back(const OutputFile& file, const Segment& segment) const {
    Error error(ErrorCode::kCorrupt,
                "what was written reads back as something else: the storage is at fault");
    error.in_file(to_.root() + "/" + file.layout.name).at(segment.offset);
    if (segment.kind == Segment::Kind::kTensor) error.of_tensor(entries_[segment.index].from);
    throw error;
  }

  void commit() {
    written_.source_checked = source_checked_;
    std::vector<std::string> there;
    there.reserve(files_.size());
    try {
      for (const auto& file : files_) {
        if (options_.cancelled != nullptr && *options_.cancelled)
          throw Error(ErrorCode::kCancelled, "the conversion was cancelled");
        // The index comes last. It must not survive a loss of power that takes a file which it names.
        if (options_.durable && file->layout.name == kIndexFile) to_.sync_directory();
        std::string name = file->layout.name;  // no memory is needed once it is there
        file->writer->commit();
        there.push_back(std::move(name));
        CAIRN_POINT("convert.file_committed");
      }
      if (options_.durable) to_.sync_directory();
    } catch (...) {
      remove_all(there);
      throw;
    }
  }

  void remove_all(const std::vector<std::string>& names) noexcept {
    for (const std::string& name : names) {
      try {
        to_.remove(name);
      } catch (...) {
        // It is there without the others; the error that is on its way says that something failed.
      }
    }
  }

  FileSystem& to_;
  const std::vector<ConvertEntry>& entries_;
  const CheckpointSource& source_;
  const ConvertOptions& options_;
  std::vector<std::unique_ptr<OutputFile>> files_;
  std::uint64_t total_ = 0;
  std::uint64_t window_ = 0;
  int threads_ = 1;
  std::vector<Tensor> buffers_;  // by thread
  std::mutex progress_;
  std::atomic<std::uint64_t> source_checked_ = 0;
  WrittenFiles written_;
};

}  // namespace

int convert_threads(const ConvertOptions& options, std::uint64_t bytes) {
  const int wanted =
      options.threads > 0 ? options.threads : std::clamp(core_count(), kLeastThreads, kMostThreads);
  const std::uint64_t fit = options.memory_budget * 3 / 4 / bytes;
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 1, static_cast<std::uint64_t>(wanted)));
}

WrittenFiles write_files(FileSystem& to, OutputLayout& layout, const std::vector<ConvertEntry>& entries,
                         const CheckpointSource& source, const ConvertOptions& options) {
  return OutputWriter(to, layout, entries, source, options).run();
}

}  // namespace cairn
