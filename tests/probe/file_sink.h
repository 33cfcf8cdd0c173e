// A file to write to; it is there from the first byte on.
#pragma once

#include <fstream>

#include "base/sink.h"
#include "cairn/error.h"

class FileSink final : public cairn::ByteSink {
 public:
  explicit FileSink(const char* path) : path_(path) {}
  void append(cairn::ByteSpan bytes) override {
    if (!file_.is_open()) file_.open(path_, std::ios::binary);
    file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file_.flush()) throw cairn::Error(cairn::ErrorCode::kIo, "cannot write").in_file(path_);
  }

 private:
  const char* path_;
  std::ofstream file_;
};
