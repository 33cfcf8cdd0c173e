#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

#include "testing/s3_wire.h"

namespace cairn::loopback {
namespace {

void must(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("the test server cannot have TLS: ") + what);
}

void extend(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  must(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, value);
  X509_EXTENSION_free(extension);
}

}  // namespace

SSL_CTX* new_tls(const std::string& bundle) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  must(key != nullptr && certificate != nullptr, "no key");
  X509* const made = certificate.get();
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 30L * 24 * 3600);
  X509_set_pubkey(made, key.get());
  X509_NAME* const name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("cairn test server"), -1, -1, 0);
  X509_set_issuer_name(made, name);
  extend(made, NID_basic_constraints, "critical,CA:TRUE");
  extend(made, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost,DNS:s3.localhost,DNS:*.s3.localhost");
  must(X509_sign(made, key.get(), EVP_sha256()) > 0, "not signed");

  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(bundle.c_str(), "w"), std::fclose);
  must(file != nullptr && PEM_write_X509(file.get(), made) == 1, "the bundle cannot be written");
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  must(context != nullptr && SSL_CTX_use_certificate(context, made) == 1 &&
           SSL_CTX_use_PrivateKey(context, key.get()) == 1,
       "the certificate is not taken");
  return context;
}

}  // namespace cairn::loopback
