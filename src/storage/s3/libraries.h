// libcurl and OpenSSL's libcrypto, loaded when a bucket is first spoken to: who has none, and the wheel,
// which stands on nothing but the C library, do without them until then.
//
//   CURL* easy = curl().easy_init();
#pragma once

#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

namespace cairn::s3 {

struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_multi_init) multi_init;
  decltype(&curl_multi_cleanup) multi_cleanup;
  decltype(&curl_multi_setopt) multi_setopt;
  decltype(&curl_multi_add_handle) multi_add_handle;
  decltype(&curl_multi_remove_handle) multi_remove_handle;
  decltype(&curl_multi_perform) multi_perform;
  decltype(&curl_multi_poll) multi_poll;
  decltype(&curl_multi_info_read) multi_info_read;
  decltype(&curl_multi_strerror) multi_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
};

struct Crypto {
  decltype(&EVP_EncodeBlock) encode_block;
  decltype(&EVP_Digest) digest;
  decltype(&EVP_sha256) sha256;
  decltype(&EVP_md5) md5;
  decltype(&HMAC) hmac;
  decltype(&EVP_MD_CTX_new) context_new;
  decltype(&EVP_MD_CTX_free) context_free;
  decltype(&EVP_DigestInit_ex) digest_init;
  decltype(&EVP_DigestUpdate) digest_update;
  decltype(&EVP_DigestFinal_ex) digest_final;
};

// Error(kUnsupported), with the package to install, where there is none or none that will do.
const Curl& curl();
const Crypto& crypto();

}  // namespace cairn::s3
