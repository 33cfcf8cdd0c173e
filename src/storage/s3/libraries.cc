#include "storage/s3/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

// What comes first of these names. It stays for as long as the process lives.
class Library {
 public:
  Library(const char* what, const char* package, std::initializer_list<const char*> names) : what_(what) {
    for (const char* name : names)
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("object stores need {}, which is not on this machine: install it (Debian: {})",
                            what, package));
  }

  template <class Function> void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function != nullptr) return;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("this machine's {} is too old for object stores: it has no {}", what_, name));
  }

 private:
  const char* what_;
  void* handle_ = nullptr;
};

Curl load_curl() {
  const Library library("libcurl", "libcurl4", {"libcurl.so.4", "libcurl-gnutls.so.4"});
  Curl curl = {};
  library.find(curl.global_init, "curl_global_init");
  library.find(curl.easy_init, "curl_easy_init");
  library.find(curl.easy_cleanup, "curl_easy_cleanup");
  library.find(curl.easy_setopt, "curl_easy_setopt");
  library.find(curl.easy_getinfo, "curl_easy_getinfo");
  library.find(curl.easy_strerror, "curl_easy_strerror");
  library.find(curl.multi_init, "curl_multi_init");
  library.find(curl.multi_cleanup, "curl_multi_cleanup");
  library.find(curl.multi_setopt, "curl_multi_setopt");
  library.find(curl.multi_add_handle, "curl_multi_add_handle");
  library.find(curl.multi_remove_handle, "curl_multi_remove_handle");
  library.find(curl.multi_perform, "curl_multi_perform");
  library.find(curl.multi_poll, "curl_multi_poll");
  library.find(curl.multi_info_read, "curl_multi_info_read");
  library.find(curl.multi_strerror, "curl_multi_strerror");
  library.find(curl.slist_append, "curl_slist_append");
  library.find(curl.slist_free_all, "curl_slist_free_all");
  if (const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
    throw Error(ErrorCode::kInternal, "libcurl does not start");
  return curl;
}

Crypto load_crypto() {
  const Library library("libcrypto", "libssl3", {"libcrypto.so.3", "libcrypto.so.1.1"});
  Crypto crypto = {};
  library.find(crypto.encode_block, "EVP_EncodeBlock");
  library.find(crypto.digest, "EVP_Digest");
  library.find(crypto.sha256, "EVP_sha256");
  library.find(crypto.md5, "EVP_md5");
  library.find(crypto.hmac, "HMAC");
  library.find(crypto.context_new, "EVP_MD_CTX_new");
  library.find(crypto.context_free, "EVP_MD_CTX_free");
  library.find(crypto.digest_init, "EVP_DigestInit_ex");
  library.find(crypto.digest_update, "EVP_DigestUpdate");
  library.find(crypto.digest_final, "EVP_DigestFinal_ex");
  return crypto;
}

}  // namespace

const Curl& curl() {
  static const Curl loaded = load_curl();
  return loaded;
}

const Crypto& crypto() {
  static const Crypto loaded = load_crypto();
  return loaded;
}

}  // namespace cairn::s3
