#include "python_file.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "cairn/error.h"

namespace cairn::python {
namespace {

constexpr std::size_t kMostStreams = 8;  // of one file, read at the same time

class PythonWriter final : public FileWriter {
 public:
  PythonWriter(std::shared_ptr<const PythonFolder> folder, std::string name, const WriteHow& how)
      : folder_(std::move(folder)), name_(std::move(name)), how_(how) {
    in_python(folder_->shown(name_), [&] {
      grows_as_ = how.naming == Naming::kInPlace ? name_ : partial_name(name_);
      stream_ = folder_->open(grows_as_, how.mode);
    });
  }

  ~PythonWriter() override {
    if (committed_) return;
    nb::gil_scoped_acquire acquire;
    stream_.reset();
    folder_->remove_quietly(grows_as_);
  }

  bool appends_only() const override { return true; }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset < position_)
      throw Error(ErrorCode::kUnsupported, "a file here is written from its front to its end")
          .in_file(folder_->shown(name_))
          .at(offset);
    in_python(folder_->shown(name_), [&] {
      static constexpr std::array<std::byte, 4096> kZeros{};
      for (; position_ < offset; position_ += std::min<std::uint64_t>(offset - position_, kZeros.size()))
        stream_->write(std::span(kZeros).first(std::min<std::uint64_t>(offset - position_, kZeros.size())));
      stream_->write(bytes);
    });
    position_ += bytes.size();
  }

  void commit() override {
    in_python(folder_->shown(name_), [&] {
      if (how_.durable) stream_->make_durable();
      stream_->close();
      if (how_.naming == Naming::kAlone) folder_->open(name_, "xb")->close();
      try {
        if (how_.naming != Naming::kInPlace) folder_->rename(grows_as_, name_, how_.renames_in_one_step);
      } catch (nb::python_error&) {
        if (how_.naming == Naming::kAlone) give_the_name_back();
        throw;
      }
    });
    committed_ = true;
  }

 private:
  void give_the_name_back() const {
    auto stream = folder_->open(name_, "rb");
    const bool is_empty = stream->size() == 0;
    stream->close();
    if (is_empty) folder_->remove_quietly(name_);
  }

  std::shared_ptr<const PythonFolder> folder_;
  std::string name_, grows_as_;
  const WriteHow how_;
  std::unique_ptr<PythonStream> stream_;
  std::uint64_t position_ = 0;
  bool committed_ = false;
};

// As many streams as threads read at the same time, up to a few: each has a place of its own in the file.
class PythonSource final : public ByteSource {
 public:
  PythonSource(std::shared_ptr<const PythonFolder> folder, std::string file)
      : folder_(std::move(folder)), file_(std::move(file)), name_(folder_->shown(file_)) {
    in_python(name_, [&] {
      free_.push_back(folder_->open(file_, "rb"));
      size_ = free_.back()->size();
    });
    first_ = free_.back().get();
  }

  ~PythonSource() override {
    nb::gil_scoped_acquire acquire;
    for (const auto& stream : free_) close_quietly(*stream);
    free_.clear();
  }

  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > size_ || to.size() > size_ - offset)
      throw Error(ErrorCode::kCorrupt, std::to_string(to.size()) + " bytes wanted, and the file has " +
                                           std::to_string(size_) + ": it is cut off")
          .in_file(name_)
          .at(offset);
    std::unique_ptr<PythonStream> stream = take();
    try {
      const bool whole = in_python(name_, [&] { return stream->read_at(offset, to); });
      if (!whole) throw Error(ErrorCode::kCorrupt, "the file ends early").in_file(name_).at(offset);
    } catch (...) {
      give_back(std::move(stream));
      throw;
    }
    give_back(std::move(stream));
  }

 private:
  static void close_quietly(PythonStream& stream) {
    try {
      stream.close();
    } catch (nb::python_error&) {
      // All that was wanted of it has been read.
    }
  }

  // The GIL is not held here, nor waited for by whoever holds the mutex.
  std::unique_ptr<PythonStream> take() const {
    {
      std::unique_lock lock(mutex_);
      freed_.wait(lock, [&] { return !free_.empty() || open_ < most_; });
      if (!free_.empty()) {
        std::unique_ptr<PythonStream> stream = std::move(free_.back());
        free_.pop_back();
        return stream;
      }
      ++open_;
    }
    std::unique_ptr<PythonStream> another;
    try {
      another = in_python(name_, [&] {
        auto stream = folder_->open(file_, "rb");
        if (!stream->is_the_same_as(*first_)) return stream;
        close_quietly(*stream);
        return std::unique_ptr<PythonStream>();
      });
    } catch (...) {
      lower(false);
      throw;
    }
    if (another != nullptr) return another;
    lower(true);  // fsspec's files in memory are one stream each
    return take();
  }

  void lower(bool for_good) const {
    const std::lock_guard lock(mutex_);
    --open_;
    if (for_good) most_ = 1;
    freed_.notify_one();
  }

  void give_back(std::unique_ptr<PythonStream> stream) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(stream));
    freed_.notify_one();
  }

  std::shared_ptr<const PythonFolder> folder_;
  const std::string file_, name_;
  std::uint64_t size_ = 0;
  const PythonStream* first_ = nullptr;  // never closed before the others
  mutable std::mutex mutex_;             // guards what follows
  mutable std::condition_variable freed_;
  mutable std::vector<std::unique_ptr<PythonStream>> free_;
  mutable std::size_t open_ = 1, most_ = kMostStreams;
};

}  // namespace

std::unique_ptr<FileWriter> python_writer(std::shared_ptr<const PythonFolder> folder, std::string name,
                                          const WriteHow& how) {
  return std::make_unique<PythonWriter>(std::move(folder), std::move(name), how);
}

std::shared_ptr<const ByteSource> python_source(std::shared_ptr<const PythonFolder> folder,
                                                std::string name) {
  return std::make_shared<PythonSource>(std::move(folder), std::move(name));
}

}  // namespace cairn::python
