// Checkpoints on a plain web server.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/convert.h"
#include "cairn/storage.h"
#include "cairn/verify.h"
#include "storage/s3/file_system.h"
#include "testing/errors.h"
#include "testing/s3_bucket.h"
#include "testing/s3_server.h"

namespace cairn::s3 {
namespace {

// A bucket that anybody may read is a web server.
class WebFolder : public testing::Test {
 protected:
  std::string url(const std::string& path) const { return server_.endpoint() + "/bucket/" + path; }

  static StateDict state() {
    Tensor tensor = Tensor::empty(DType::kFloat32, {1000});
    std::fill(tensor.bytes().begin(), tensor.bytes().end(), std::byte{7});
    StateDict state;
    state.set("w", Value(std::move(tensor)));
    return state;
  }
  void save_there(const std::string& folder) {
    StateDict saved = state();
    save(saved, "memory://web-folder/" + folder, {.write = {.files_per_rank = 1}});
    const auto files = file_system_of("memory://web-folder/" + folder);
    for (const FileEntry& entry : files->list())
      server_.put(folder + "/" + entry.name, read_all(*files->open(entry.name)));
  }

  S3Server server_;
};

TEST_F(WebFolder, ACheckpointIsLoadedAndShown) {
  save_there("run");
  StateDict loaded = state();
  std::fill_n(loaded.find("w")->get<Tensor>().bytes().data(), 4000, std::byte{0});
  load(loaded, url("run"));
  EXPECT_EQ(loaded.find("w")->get<Tensor>().bytes()[3999], std::byte{7});
  const auto checkpoint = Checkpoint::open(url("run/"));
  EXPECT_EQ(checkpoint->tensors().size(), 1U);
  for (const FileSummary& file : checkpoint->files()) EXPECT_TRUE(file.size.has_value()) << file.name;
}

TEST_F(WebFolder, ACheckpointIsVerifiedAndConverted) {
  save_there("run");
  const VerifyReport report = verify(url("run"));
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.bytes_checked, 4000U);
  convert(url("run"), "memory://web-folder/converted");
  EXPECT_TRUE(verify("memory://web-folder/converted").ok());
  convert(url("run"), "memory://web-folder/hf", {.to = Format::kHuggingFace, .skip_objects = true});
  const auto files = file_system_of("memory://web-folder/hf");
  for (const FileEntry& entry : files->list())
    server_.put("hf/" + entry.name, read_all(*files->open(entry.name)));
  EXPECT_EQ(Checkpoint::open(url("hf"))->tensors().size(), 1U);
  for (const std::string& key : server_.keys()) {
    if (!key.ends_with(".distcp")) continue;
    std::string bytes = server_.objects().at(key).bytes;
    bytes[bytes.size() / 2] ^= 1;
    server_.put(key, bytes);
  }
  EXPECT_FALSE(verify(url("run")).ok());
}

TEST_F(WebFolder, AFileIsRead) {
  server_.put("a file", "0123456789");
  const Place place = find_place(url("a%20file"));
  ASSERT_TRUE(place.is_file());
  EXPECT_EQ(place.name, "a file");
  std::string middle(4, ' ');
  place.files->open("a file")->read_at(3, std::as_writable_bytes(std::span(middle)));
  EXPECT_EQ(middle, "3456");
}

TEST_F(WebFolder, WhatIsNotThereIsSaidToBeMissing) {
  EXPECT_EQ(find_place(url("none")).files, nullptr);
  EXPECT_EQ(code_of([&] { Checkpoint::open(url("none")); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { file_system_of(url("none"))->open("x"); }), ErrorCode::kNotFound);
}

TEST_F(WebFolder, NothingIsWrittenThere) {
  StateDict saved = state();
  EXPECT_EQ(code_of([&] { save(saved, url("new")); }), ErrorCode::kUnsupported);
  const auto files = file_system_of(url("run"));
  EXPECT_EQ(code_of([&] { files->create("x"); }), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { files->remove("x"); }), ErrorCode::kUnsupported);
  EXPECT_TRUE(server_.keys().empty());
}

TEST_F(WebFolder, RedirectsAreFollowed) {
  server_.put("there", "found");
  const std::string there = url("there");
  server_.set_fault([=](const S3Request& request) {
    if (request.key != "here") return S3Fault();
    return S3Fault{.raw = "HTTP/1.1 302 Found\r\nLocation: " + there + "\r\nContent-Length: 0\r\n\r\n"};
  });
  EXPECT_EQ(read_all(*file_system_of(url(""))->open("here")), "found");
}

TEST_F(WebFolder, AServerThatKnowsNoRangesIsAnError) {
  server_.put("file", std::string(1000, 'x'));
  server_.set_fault([=](const S3Request& request) {
    if (request.method != "GET") return S3Fault();
    return S3Fault{.raw = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')};
  });
  const auto file = file_system_of(url(""))->open("file");
  std::string middle(4, ' ');
  EXPECT_EQ(code_of([&] { file->read_at(3, std::as_writable_bytes(std::span(middle))); }), ErrorCode::kLimit);
}

TEST_F(WebFolder, UrlsThatMakeNoSenseAreRefused) {
  for (const char* bad :
       {"https://", "http:///x", "https://host/a?b=c", "https://me:secret@host/a", "http://host/../a"})
    EXPECT_EQ(code_of([&] { file_system_of(bad); }), ErrorCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace cairn::s3
