// SPDX-License-Identifier: Apache-2.0
// The rules of a TLS connection whose two ends share a secret: TLS 1.3 only, and an external PSK with
// (EC)DHE. Certificates, tickets, resumption and early data are not used. The cipher suite is
// TLS_AES_128_GCM_SHA256: the secrets have 128 bits, so a longer key would add nothing.
// Threads: a context is immutable and may be shared. Ownership: streams keep their context alive. Errors:
// kInternal with OpenSSL's text.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "libckpt/base/handle.h"
#include "libckpt/base/result.h"

namespace ckpt::tls {

inline constexpr std::size_t kMaxIdentityBytes = 256;

// A pre-shared key. Its memory is cleared on destruction.
class PskKey {
 public:
  PskKey() = default;
  PskKey(const PskKey&) = default;
  PskKey& operator=(const PskKey&) = default;
  ~PskKey();
  [[nodiscard]] std::span<unsigned char, 32> bytes() noexcept { return bytes_; }
  [[nodiscard]] std::span<const unsigned char, 32> bytes() const noexcept { return bytes_; }

 private:
  std::array<unsigned char, 32> bytes_{};
};

// Derives a key from a random secret with HKDF-SHA256. The label names the use, so that different uses have
// different keys.
Result<PskKey> derive_psk(std::span<const std::byte> secret, std::string_view label);

// Finds the key of an identity that a client names. Returns false if there is no key. It is called during the
// handshake, on the stream's thread. Its duration must not reveal whether a key exists.
using FindPsk = std::function<bool(std::string_view identity, PskKey& key)>;
// Returns a function that knows one identity only and compares it in constant time.
FindPsk only_psk(std::string identity, const PskKey& key);

struct SslTraits {
  using Value = SSL*;
  static constexpr Value kNull = nullptr;
  static void close(Value ssl) noexcept { SSL_free(ssl); }
};
struct SslContextTraits {
  using Value = SSL_CTX*;
  static constexpr Value kNull = nullptr;
  static void close(Value context) noexcept { SSL_CTX_free(context); }
};
using UniqueSsl = UniqueHandle<SslTraits>;
using UniqueSslContext = UniqueHandle<SslContextTraits>;

class PskContext {
 public:
  static Result<std::shared_ptr<const PskContext>> create();
  // Creates an SSL object for psk_stream.cc, which then sets the data that the two callbacks below read.
  [[nodiscard]] Result<UniqueSsl> make_ssl() const;

 private:
  explicit PskContext(UniqueSslContext context) : context_(std::move(context)) {}
  UniqueSslContext context_;
};

// The data of a stream during the handshake, stored as SSL_get_app_data() of its SSL.
struct PskRole {
  FindPsk find;          // the function by which a server finds keys
  std::string identity;  // the client's identity, used with `key`
  PskKey key;
};

// Returns the oldest OpenSSL error of this thread as text and drops the other errors.
std::string pop_openssl_error();

}  // namespace ckpt::tls
