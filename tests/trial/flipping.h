// A FileSystem whose storage lies: one bit of what is written to it, or read from it, is another than it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/storage.h"
#include "testing/forwarding.h"

namespace cairn {

// Which bit: bit `bit` of the n-th call that moves bytes, when it moves that many. Used by many threads at
// once.
struct Flip {
  enum class Where { kNowhere, kWrite, kRead };
  Where where = Where::kNowhere;
  std::uint64_t call = 0;
  std::uint64_t bit = 0;  // of the call's bytes, modulo their number
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<bool> flipped = false;

  void arm(Where now, std::uint64_t nth, std::uint64_t which) {
    where = now;
    call = nth;
    bit = which;
    calls = 0;
    flipped = false;
  }
  // Whether these bytes are the ones.
  bool meets(Where now, std::size_t size) {
    if (where != now || size == 0 || calls++ != call) return false;
    return flipped = true;
  }
  void apply(std::byte* bytes, std::size_t size) const {
    bytes[bit / 8 % size] ^= static_cast<std::byte>(1U << (bit % 8));
  }
};

class FlippingSource final : public ByteSource {
 public:
  FlippingSource(std::shared_ptr<const ByteSource> inner, Flip& flip)
      : inner_(std::move(inner)), flip_(flip) {}
  std::uint64_t size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    inner_->read_at(offset, to);
    if (flip_.meets(Flip::Where::kRead, to.size())) flip_.apply(to.data(), to.size());
  }

 private:
  std::shared_ptr<const ByteSource> inner_;
  Flip& flip_;
};

class FlippingWriter final : public FileWriter {
 public:
  FlippingWriter(std::unique_ptr<FileWriter> inner, Flip& flip) : inner_(std::move(inner)), flip_(flip) {}
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (!flip_.meets(Flip::Where::kWrite, bytes.size())) return inner_->write_at(offset, bytes);
    std::vector<std::byte> other(bytes.begin(), bytes.end());
    flip_.apply(other.data(), other.size());
    inner_->write_at(offset, other);
  }
  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    return inner_->read_back(offset, to);
  }
  void commit() override { inner_->commit(); }

 private:
  std::unique_ptr<FileWriter> inner_;
  Flip& flip_;
};

// `flip` outlives it and all that it gives.
class FlippingFileSystem final : public ForwardingFileSystem {
 public:
  FlippingFileSystem(std::unique_ptr<FileSystem> inner, Flip& flip)
      : ForwardingFileSystem(*inner), owned_(std::move(inner)), flip_(flip) {}
  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    return std::make_unique<FlippingWriter>(inner_.create(name, options), flip_);
  }
  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    return std::make_shared<FlippingSource>(inner_.open(name), flip_);
  }

 private:
  std::unique_ptr<FileSystem> owned_;
  Flip& flip_;
};

}  // namespace cairn
