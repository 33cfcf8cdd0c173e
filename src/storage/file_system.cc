// URLs, and which kind of file system each of them means.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/kinds.h"

namespace cairn {
namespace {

[[noreturn]] void refuse(const std::string& url, std::string why) {
  throw Error(ErrorCode::kInvalidArgument, std::move(why)).in_file(url);
}

}  // namespace

std::string percent_decoded(const std::string& url, std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
    if (digits.size() != 2 || end != digits.data() + 2 || value == 0)
      refuse(url, "a percent sign in a URL stands before two hexadecimal digits; itself it is %25");
    plain += static_cast<char>(value);
    i += 2;
  }
  return plain;
}

namespace {

// "/data/run" of "file:///data/run" and "file://localhost/data/run".
std::string path_of_file_url(const std::string& url, std::string_view rest) {
  constexpr std::string_view kHere = "localhost";
  if (rest.starts_with(kHere)) rest.remove_prefix(kHere.size());
  if (!rest.starts_with('/'))
    refuse(url, "a file:// URL has three slashes and an absolute path: file:///data/run");
  return percent_decoded(url, rest);
}

// A URL in its parts; a plain path has no scheme.
struct Url {
  std::string scheme;
  std::string rest;
};

bool is_scheme(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto other = [](char c) { return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'; };
  return !text.empty() && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || other(c); });
}

Url parse(const std::string& url) {
  const std::size_t colon = url.find("://");
  if (colon == url.npos || !is_scheme(std::string_view(url).substr(0, colon))) return {"", url};
  const std::string scheme = url.substr(0, colon), rest = url.substr(colon + 3);
  if (scheme == "file") return {"", path_of_file_url(url, rest)};
  return {scheme, rest};
}

// Adding a kind of file system: a row here, and a file of its own.
struct Kind {
  std::string_view scheme;
  std::unique_ptr<FileSystem> (*open)(const std::string& rest, const FileSystemOptions& options);
  Place (*find)(const std::string& rest, const FileSystemOptions& options);
};
using Options = FileSystemOptions;
constexpr std::array kKinds = {
    Kind{"", posix_file_system, find_on_disk},  // file:// too
    Kind{"memory", shared_memory_folder, find_in_memory},
    Kind{"s3", object_store_folder, find_in_object_store},
    Kind{"https", [](const std::string& rest, const Options& how) { return web_folder("https", rest, how); },
         [](const std::string& rest, const Options& how) { return find_on_the_web("https", rest, how); }},
    Kind{"http", [](const std::string& rest, const Options& how) { return web_folder("http", rest, how); },
         [](const std::string& rest, const Options& how) { return find_on_the_web("http", rest, how); }},
};

const Kind& kind_of(const Url& parsed, const std::string& url) {
  for (const Kind& kind : kKinds)
    if (kind.scheme == parsed.scheme) return kind;
  std::string known = "file://";
  for (const Kind& kind : kKinds)
    if (!kind.scheme.empty()) known += fmt::format(", {}://", kind.scheme);
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("no file system is known for {}://; known are plain paths, {}", parsed.scheme, known))
      .in_file(url);
}

}  // namespace

std::vector<FileEntry> FileSystem::list() const {
  std::vector<FileEntry> files = entries();
  std::erase_if(files, [](const FileEntry& entry) { return entry.kind != FileEntry::Kind::kFile; });
  return files;
}

void FileSystem::remove_all(std::span<const std::string> names) {
  for (const std::string& name : names) {
    try {
      remove(name);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) throw;
    }
  }
}

std::unique_ptr<FileSystem> file_system_of(const std::string& url, const FileSystemOptions& options) {
  const Url parsed = parse(url);
  return kind_of(parsed, url).open(parsed.rest, options);
}

Place find_place(const std::string& url, const FileSystemOptions& options) {
  const Url parsed = parse(url);
  return kind_of(parsed, url).find(parsed.rest, options);
}

UrlParts split_path(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

UrlParts split_url(const std::string& url) {
  const Url parsed = parse(url);
  if (parsed.scheme.empty()) return split_path(parsed.rest);
  UrlParts parts = split_path("/" + parsed.rest);
  parts.folder = parsed.scheme + "://" + parts.folder.substr(1);
  return parts;
}

std::optional<std::string> local_path_of(const std::string& url) {
  const Url parsed = parse(url);
  return parsed.scheme.empty() ? std::optional(parsed.rest) : std::nullopt;
}

}  // namespace cairn
