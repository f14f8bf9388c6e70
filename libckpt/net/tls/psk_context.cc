// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/tls/psk_context.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

namespace ckpt::tls {
namespace {

constexpr unsigned char kSuite[2] = {0x13, 0x01};  // the cipher suite TLS_AES_128_GCM_SHA256
constexpr const char* kSuiteName = "TLS_AES_128_GCM_SHA256";
constexpr const char* kGroups = "X25519:P-256";

struct KdfTraits {
  using Value = EVP_KDF*;
  static constexpr Value kNull = nullptr;
  static void close(Value kdf) noexcept { EVP_KDF_free(kdf); }
};
struct KdfContextTraits {
  using Value = EVP_KDF_CTX*;
  static constexpr Value kNull = nullptr;
  static void close(Value context) noexcept { EVP_KDF_CTX_free(context); }
};
struct SessionTraits {
  using Value = SSL_SESSION*;
  static constexpr Value kNull = nullptr;
  static void close(Value session) noexcept { SSL_SESSION_free(session); }
};
using UniqueSession = UniqueHandle<SessionTraits>;

Error failed(const char* what) {
  return {ErrorCode::kInternal, std::string(what) + ": " + pop_openssl_error()};
}

// Returns the PSK as a session, which is the form in which OpenSSL accepts an external PSK.
UniqueSession session_of(SSL* ssl, const PskKey& key) {
  UniqueSession session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSuite);
  const auto bytes = key.bytes();
  if (!session || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), bytes.data(), bytes.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1)
    return {};
  return session;
}

// Supplies a client's PSK to OpenSSL.
int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* identity_bytes,
                SSL_SESSION** session) {
  const auto* role = static_cast<const PskRole*>(SSL_get_app_data(ssl));
  UniqueSession made = session_of(ssl, role->key);
  if (!made) return 0;
  *identity = reinterpret_cast<const unsigned char*>(role->identity.data());
  *identity_bytes = role->identity.size();
  *session = made.release();
  return 1;
}

// Supplies a server's PSK to OpenSSL. For an unknown identity it uses a random key, so that the answer equals
// the answer to a known identity with a wrong key.
int find_session(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes, SSL_SESSION** session) {
  const auto* role = static_cast<const PskRole*>(SSL_get_app_data(ssl));
  PskKey key;
  PskKey random;
  if (RAND_bytes(random.bytes().data(), static_cast<int>(random.bytes().size())) != 1) return 0;
  const std::string_view name(reinterpret_cast<const char*>(identity), identity_bytes);
  const bool known = role->find && role->find(name, key);
  const auto mask = static_cast<unsigned char>(known ? 0xff : 0);
  for (std::size_t i = 0; i < key.bytes().size(); ++i)
    key.bytes()[i] = static_cast<unsigned char>((key.bytes()[i] & mask) | (random.bytes()[i] & ~mask));
  UniqueSession made = session_of(ssl, key);
  if (!made) return 0;
  *session = made.release();
  return 1;
}

}  // namespace

PskKey::~PskKey() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

std::string pop_openssl_error() {
  const unsigned long code = ERR_get_error();
  char text[256] = "OpenSSL reports no error";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

Result<PskKey> derive_psk(std::span<const std::byte> secret, std::string_view label) {
  const UniqueHandle<KdfTraits> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const UniqueHandle<KdfContextTraits> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  if (!context) return failed("Deriving a key");
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(label.data()), label.size()),
      OSSL_PARAM_construct_end()};
  PskKey key;
  if (EVP_KDF_derive(context.get(), key.bytes().data(), key.bytes().size(), params) != 1)
    return failed("Deriving a key");
  return key;
}

FindPsk only_psk(std::string identity, const PskKey& key) {
  return [identity = std::move(identity), key](std::string_view asked, PskKey& found) {
    std::array<char, kMaxIdentityBytes> mine{};
    std::array<char, kMaxIdentityBytes> theirs{};
    std::memcpy(mine.data(), identity.data(), std::min(identity.size(), mine.size()));
    std::memcpy(theirs.data(), asked.data(), std::min(asked.size(), theirs.size()));
    found = key;
    const bool same = CRYPTO_memcmp(mine.data(), theirs.data(), mine.size()) == 0;
    return static_cast<bool>(same & (asked.size() == identity.size()));
  };
}

Result<std::shared_ptr<const PskContext>> PskContext::create() {
  UniqueSslContext made(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = made.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kSuiteName) != 1 || SSL_CTX_set1_groups_list(context, kGroups) != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1 || SSL_CTX_set_max_early_data(context, 0) != 1 ||
      SSL_CTX_set_recv_max_early_data(context, 0) != 1)
    return failed("Setting up TLS");
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_read_ahead(context, 1);  // reads a whole record with one recv()
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_use_session_callback(context, &use_session);
  SSL_CTX_set_psk_find_session_callback(context, &find_session);
  return std::shared_ptr<const PskContext>(new PskContext(std::move(made)));
}

Result<UniqueSsl> PskContext::make_ssl() const {
  UniqueSsl ssl(SSL_new(context_.get()));
  if (!ssl) return failed("Creating a TLS connection");
  return ssl;
}

}  // namespace ckpt::tls
