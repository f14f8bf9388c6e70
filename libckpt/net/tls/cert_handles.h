// SPDX-License-Identifier: Apache-2.0
// OpenSSL's objects around certificates, each with its owner. Value types.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstddef>
#include <span>

#include "libckpt/base/handle.h"
#include "libckpt/net/tls/psk_context.h"

namespace ckpt::tls {

struct CertificateTraits {
  using Value = X509*;
  static constexpr Value kNull = nullptr;
  static void close(Value certificate) noexcept { X509_free(certificate); }
};
struct PrivateKeyTraits {
  using Value = EVP_PKEY*;
  static constexpr Value kNull = nullptr;
  static void close(Value key) noexcept { EVP_PKEY_free(key); }
};
struct BioTraits {
  using Value = BIO*;
  static constexpr Value kNull = nullptr;
  static void close(Value bio) noexcept { BIO_free_all(bio); }
};
using UniqueCertificate = UniqueHandle<CertificateTraits>;
using UniquePrivateKey = UniqueHandle<PrivateKeyTraits>;
using UniqueBio = UniqueHandle<BioTraits>;

// Reads the text in place: it must outlive the BIO.
inline UniqueBio bio_of(std::span<const char> text) {
  return UniqueBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
// For PEM readers: a key that wants a password is refused, and nobody is asked.
inline int no_password(char*, int, int, void*) {
  return -1;
}

}  // namespace ckpt::tls
