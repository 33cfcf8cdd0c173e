// A small language for archives like torch's, good and bad, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "format/pickle_writer.h"
#include "format/torch_file.h"

namespace cairn::torch_archive {

using Records = std::vector<std::pair<std::string, std::string>>;

inline std::string pickled(const std::function<void(pickle::Writer&)>& write) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  write(w);
  w.finish();
  return sink.text;
}

// A tensor as torch pickles it. Tests spoil one field.
struct Spec {
  std::string function = "_rebuild_tensor_v2";
  std::string storage_class = "FloatStorage";
  std::string key = "0";
  std::int64_t numel = 6;
  std::int64_t offset = 0;
  std::vector<std::int64_t> size{2, 3};
  std::vector<std::int64_t> stride{3, 1};
  std::string dtype;     // v3's argument
  std::string metadata;  // a key of the last argument, set to True
  // Instead of a part, when set.
  std::function<void(pickle::Writer&)> persid, storage, sizes, flag, dtype_argument, extra;
};

inline void write_tuple(pickle::Writer& w, const std::vector<std::int64_t>& numbers) {
  w.mark();
  for (const std::int64_t n : numbers) w.integer(n);
  w.tuple();
}

inline void write_persid(pickle::Writer& w, const Spec& s) {
  w.mark();
  w.string("storage");
  w.global(s.storage_class.find("Untyped") != std::string::npos ? "torch.storage" : "torch", s.storage_class);
  w.string(s.key);
  w.string("cpu");
  w.integer(s.numel);
  w.tuple();
}

inline void write_tensor(pickle::Writer& w, const Spec& s) {
  w.global("torch._utils", s.function);
  w.mark();
  if (s.storage) {
    s.storage(w);
  } else {
    s.persid ? s.persid(w) : write_persid(w, s);
    w.persid();
  }
  w.integer(s.offset);
  s.sizes ? s.sizes(w) : write_tuple(w, s.size);
  write_tuple(w, s.stride);
  s.flag ? s.flag(w) : w.boolean(false);
  w.global("collections", "OrderedDict");
  w.tuple(0);
  w.reduce();
  if (s.dtype_argument) s.dtype_argument(w);
  if (!s.dtype.empty()) w.global("torch", s.dtype);
  if (!s.metadata.empty()) w.value(Dict{{s.metadata, true}});
  if (s.extra) s.extra(w);
  w.tuple();
  w.reduce();
}

inline std::string pickle_of(const Spec& s) {
  return pickled([&](pickle::Writer& w) { write_tensor(w, s); });
}

inline const std::string kSixFloats(24, '\x3f');

inline Records good() {
  return {{"data.pkl", pickle_of({})}, {"byteorder", "little"}, {"data/0", kSixFloats}, {"version", "3\n"}};
}

inline Records with(const std::string& name, const std::string& content) {
  Records records = good();
  for (auto& [n, c] : records) {
    if (n == name) {
      c = content;
      return records;
    }
  }
  records.emplace_back(name, content);
  return records;
}

inline Records without(const std::string& name) {
  Records records = good();
  std::erase_if(records, [&](const auto& r) { return r.first == name; });
  return records;
}

inline Records with(const Spec& s) { return with("data.pkl", pickle_of(s)); }

inline std::string archive(const Records& records) {
  StringSink sink;
  ZipWriter zip(sink);
  for (const auto& [name, content] : records) zip.add(name, as_bytes(content));
  zip.finish();
  return sink.text;
}

// The archive in memory, kept alive with the file that reads it.
struct Opened {
  std::string bytes;
  std::unique_ptr<TorchFile> file;

  explicit Opened(std::string content, const Limits& limits = {}) : bytes(std::move(content)) {
    file = TorchFile::open(memory_source(as_bytes(bytes)), {}, limits);
  }
  explicit Opened(const Records& records, const Limits& limits = {}) : Opened(archive(records), limits) {}
};

inline void expect_error(const std::function<void()>& f, ErrorCode code, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error, expected: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(e.message().find(part), std::string::npos) << e.what();
  }
}
inline void expect_corrupt(const Spec& s, const std::string& part) {
  expect_error([&] { Opened(with(s)); }, ErrorCode::kCorrupt, part);
}

}  // namespace cairn::torch_archive
