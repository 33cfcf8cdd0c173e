// A folder of a web server, to read checkpoints from: ranged GETs. There are no listings on the web, so what
// is there is what can be asked for by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/source.h"
#include "cairn/error.h"
#include "storage/file_names.h"
#include "storage/kinds.h"
#include "storage/s3/bucket.h"
#include "storage/s3/digest.h"
#include "storage/s3/source.h"

namespace cairn::s3 {
namespace {

// What says that a folder is a checkpoint, and of which files.
constexpr std::array kTelling = {".metadata", "model.safetensors.index.json"};

struct Found {
  std::uint64_t size = 0;
  std::string etag;  // empty: there is none that vouches for every byte
};

class WebFolder final : public FileSystem {
 public:
  // `path` is empty or ends in a slash.
  WebFolder(std::shared_ptr<Bucket> server, std::string path)
      : server_(std::move(server)), path_(std::move(path)), root_(client().shown(path_)) {
    while (root_.ends_with('/')) root_.pop_back();
  }

  Capabilities capabilities() const override { return {}; }
  bool is_far() const override { return true; }
  const std::string& root() const override { return root_; }
  std::string identity() const override { return root_; }

  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    check_steps(name);
    auto found = find(name);
    if (!found) throw Error(ErrorCode::kNotFound, "no such file").in_file(root_ + "/" + std::string(name));
    return object_source(server_, path_ + std::string(name), found->size, std::move(found->etag));
  }
  std::optional<FileEntry> stat(std::string_view name) const override {
    check_file_name(name);
    if (const auto found = find(name)) return FileEntry{std::string(name), found->size};
    return std::nullopt;
  }
  // Of what is there, that which tells what else there is.
  std::vector<FileEntry> entries(std::string_view folder) const override {
    std::vector<FileEntry> found;
    if (!folder.empty()) return found;
    for (const char* name : kTelling)
      if (auto entry = stat(name)) found.push_back(std::move(*entry));
    return found;
  }
  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override {
    check_file_name(folder);
    if (create) refuse();
    return std::make_unique<WebFolder>(server_, path_ + std::string(folder) + "/");
  }

  std::unique_ptr<FileWriter> create(std::string_view, const CreateOptions&) override { refuse(); }
  void rename(std::string_view, std::string_view) override { refuse(); }
  void remove(std::string_view) override { refuse(); }
  void sync_directory() override {}
  std::unique_ptr<FileLock> lock(std::string_view) override { refuse(); }
  std::optional<std::uint64_t> free_space() const override { return std::nullopt; }

 private:
  Client& client() const { return server_->client(); }

  std::optional<Found> find(std::string_view name) const {
    Call call{.method = "HEAD", .key = path_ + std::string(name), .expected = {404, 410}};
    client().call(call);
    if (call.status / 100 != 2) return std::nullopt;
    Found found;
    const std::string length(call.header("content-length"));
    if (length.empty() || length.find_first_not_of("0123456789") != length.npos || length.size() > 18)
      throw Error(ErrorCode::kIo, "the server does not say how large the file is")
          .in_file(client().shown(call.key));
    found.size = std::stoull(length);
    const std::string_view etag = call.header("etag");
    if (etag.size() > 2 && etag.front() == '"' && etag.back() == '"')
      found.etag = etag.substr(1, etag.size() - 2);
    return found;
  }

  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::kUnsupported,
                "what is on the web can only be read: save to a directory or to a bucket")
        .in_file(root_);
  }

  std::shared_ptr<Bucket> server_;
  std::string path_;
  std::string root_;
};

// "host:8000/run/step-1" in its parts.
struct Address {
  std::shared_ptr<Bucket> server;
  std::string path;  // without slashes at its ends
};

Address address_of(std::string_view scheme, const std::string& rest) {
  const std::string url = fmt::format("{}://{}", scheme, rest);
  const auto refuse = [&](const char* why) { throw Error(ErrorCode::kInvalidArgument, why).in_file(url); };
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string host = rest.substr(0, slash);
  if (host.empty()) refuse("a URL names a server: https://host/run/step-1000");
  if (host.find('@') != host.npos) refuse("names and passwords in a URL are not taken");
  if (rest.find_first_of("?#") != rest.npos) refuse("a '?' or '#' in a URL is not understood");
  Address address;
  for (std::size_t begin = slash; begin < rest.size();) {
    const std::size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string step = percent_decoded(url, std::string_view(rest).substr(begin, end - begin));
    begin = end + 1;
    if (step.empty()) continue;
    check_file_name(step);
    address.path += (address.path.empty() ? "" : "/") + step;
  }
  address.server = web_server(fmt::format("{}://{}", scheme, host));
  return address;
}

}  // namespace
}  // namespace cairn::s3

namespace cairn {

std::unique_ptr<FileSystem> web_folder(std::string_view scheme, const std::string& rest,
                                       const FileSystemOptions& options) {
  auto [server, path] = s3::address_of(scheme, rest);
  if (options.create)
    throw Error(ErrorCode::kUnsupported,
                "what is on the web can only be read: save to a directory or to a bucket")
        .in_file(server->client().shown(path));
  return std::make_unique<s3::WebFolder>(std::move(server), path.empty() ? "" : path + "/");
}

Place find_on_the_web(std::string_view scheme, const std::string& rest, const FileSystemOptions&) {
  const auto [server, path] = s3::address_of(scheme, rest);
  auto folder = std::make_shared<s3::WebFolder>(server, path.empty() ? "" : path + "/");
  if (folder->stat(s3::kTelling[0])) return {folder, ""};
  const std::size_t slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  if (!name.empty()) {
    auto above = std::make_shared<s3::WebFolder>(server, slash == path.npos ? "" : path.substr(0, slash + 1));
    if (above->stat(name)) return {above, name};
  }
  if (folder->stat(s3::kTelling[1])) return {folder, ""};
  return {};
}

}  // namespace cairn
