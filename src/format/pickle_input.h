// The bytes of a pickle, brought in piece by piece at one fixed address.
//
// A program of a few hundred megabytes is read through a window: pieces arrive in front of the reader
// and are given back behind it, yet every byte keeps its address. While one piece is read from, a second
// thread brings the next. Bytes past the end read as zeros.
#pragma once

#include <cstdint>
#include <future>

#include "base/pod_vector.h"
#include "base/source.h"

namespace cairn::pickle {

class Input {
 public:
  // Zeros that may be read past the end, so that operands of fixed size need no check of their own.
  static constexpr std::uint64_t kSlack = 1024;

  explicit Input(const ByteSource& source);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input();

  std::uint64_t size() const { return size_; }
  const std::byte* begin() const { return base_; }
  const std::byte* end() const { return base_ + size_; }

  // Makes at least [p, p + bytes) readable (as far as the file reaches) and may forget everything before
  // `keep`. Returns up to where opcodes can be decoded without asking again.
  const std::byte* bring(const std::byte* keep, const std::byte* p, std::uint64_t bytes);
  // Makes [begin, end) readable again, wherever the reader is by now.
  void restore(std::uint64_t begin, std::uint64_t end);

 private:
  void load_piece();
  void read_ahead();

  static constexpr std::uint64_t kPiece = 4ULL << 20;
  static constexpr std::uint64_t kFarPiece = 32ULL << 20;
  static constexpr std::uint64_t kKeepWhole = 64ULL << 20;  // up to this size nothing is forgotten

  const ByteSource& source_;
  std::uint64_t size_;
  const std::uint64_t piece_;  // that is read at once
  std::byte* base_ = nullptr;
  bool mapped_ = false;
  std::uint64_t loaded_ = 0;
  std::uint64_t forgotten_ = 0;
  PodVector<std::byte> small_;
  std::future<void> ahead_;  // brings the piece from loaded_ on
};

}  // namespace cairn::pickle
