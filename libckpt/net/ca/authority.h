// SPDX-License-Identifier: Apache-2.0
// A certificate authority with a P-256 key. It signs certificates that name one part of a cluster
// (net/tls/cert_peer.h), each with a key of its own that is made here.
// Threads: one. Ownership: owns its key. Errors: kInvalidArgument for a name, host or PEM text that is not
// usable; kInternal with OpenSSL's text.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_handles.h"
#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::tls {

inline constexpr std::chrono::hours kDay{24};
inline constexpr std::chrono::hours kAuthorityTerm = 3650 * kDay;
inline constexpr std::chrono::hours kCoordinatorTerm = 90 * kDay;
inline constexpr std::chrono::minutes kJoinTerm{10};
inline constexpr std::chrono::hours kClientTerm = 90 * kDay;
inline constexpr std::chrono::hours kNodeTerm = 30 * kDay;

// Both PEM. The key's text is the caller's to protect.
struct Issued {
  std::string certificate;
  std::string key;
};

class Authority {
 public:
  struct Order {
    Peer subject;
    std::vector<std::string> hosts;  // IP addresses and DNS names that stand beside it
    std::chrono::seconds term{kNodeTerm};
    std::chrono::seconds begins{0};  // from now; tests make certificates that are over
  };

  static Result<Authority> create(std::chrono::seconds term = kAuthorityTerm);
  static Result<Authority> from_pem(const Issued& pem);
  // From `ca.pem` and `ca.key` of a folder. kRefused: others can read the key.
  static Result<Authority> read(const std::string& folder);

  [[nodiscard]] Result<Issued> pem() const;
  [[nodiscard]] Result<Issued> sign(const Order& order) const;
  // The certificate (PEM) for a key that is made elsewhere (request.h). The request proves that its maker has the
  // key. All else that it states is ignored: the order counts. kInvalidArgument: it proves nothing.
  [[nodiscard]] Result<std::string> certify(const std::string& request, const Order& order) const;
  // Whether a certificate (PEM) is of this authority.
  [[nodiscard]] bool has_signed(const std::string& certificate) const;

 private:
  Authority(UniqueCertificate certificate, UniquePrivateKey key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  // For the owner of the key, whose public half is enough.
  [[nodiscard]] Result<UniqueCertificate> make(EVP_PKEY* key, const Order& order) const;
  UniqueCertificate certificate_;
  UniquePrivateKey key_;
};

}  // namespace ckpt::tls
