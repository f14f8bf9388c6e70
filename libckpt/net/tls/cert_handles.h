// SPDX-License-Identifier: Apache-2.0
// Owning handles for OpenSSL's objects around certificates. They are value types.
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

// Returns a BIO that reads the text in place. The text must outlive the BIO.
inline UniqueBio bio_of(std::span<const char> text) {
  return UniqueBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
// Refuses a key that needs a password, without a prompt. It is the password callback for PEM readers.
inline int no_password(char*, int, int, void*) {
  return -1;
}

}  // namespace ckpt::tls
