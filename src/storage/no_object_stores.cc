// What s3:// and https:// mean to a cairn that was built without object stores.
#ifndef CAIRN_HAVE_S3
#include "cairn/error.h"
#include "storage/kinds.h"

namespace cairn {
namespace {

[[noreturn]] void say_how_to_get_them(const std::string& url) {
  throw Error(
      ErrorCode::kUnsupported,
      "this cairn was built without object stores: build it again with -DCAIRN_S3=ON where the development "
      "files of libcurl and OpenSSL are installed (Debian: libcurl4-openssl-dev libssl-dev); 'cairn "
      "--version' says what is in")
      .in_file(url);
}

}  // namespace

std::unique_ptr<FileSystem> object_store_folder(const std::string& rest, const FileSystemOptions&) {
  say_how_to_get_them("s3://" + rest);
}
Place find_in_object_store(const std::string& rest, const FileSystemOptions&) {
  say_how_to_get_them("s3://" + rest);
}
std::unique_ptr<FileSystem> web_folder(std::string_view scheme, const std::string& rest,
                                       const FileSystemOptions&) {
  say_how_to_get_them(std::string(scheme) + "://" + rest);
}
Place find_on_the_web(std::string_view scheme, const std::string& rest, const FileSystemOptions&) {
  say_how_to_get_them(std::string(scheme) + "://" + rest);
}

}  // namespace cairn
#endif
