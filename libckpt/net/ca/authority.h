// SPDX-License-Identifier: Apache-2.0
// A certificate authority with a P-256 key. It signs certificates that name a coordinator, node, client or
// joiner of a cluster (net/tls/cert_peer.h). sign() also makes a new key for each certificate.
// Threads: one. Ownership: owns its key. Errors: kInvalidArgument for an unusable name, host or PEM text;
// kInternal with OpenSSL's text.
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

// A signed certificate and its key, both in PEM. The caller must protect the key's text.
struct Issued {
  std::string certificate;
  std::string key;
};

class Authority {
 public:
  struct Order {
    Peer subject;
    std::vector<std::string> hosts;  // the IP addresses and DNS names that the certificate contains in
                                     // addition to the name of its peer
    std::chrono::seconds term{kNodeTerm};
    std::chrono::seconds begins{0};  // the start of validity, counted from now; tests use it to make expired
                                     // certificates
  };

  static Result<Authority> create(std::chrono::seconds term = kAuthorityTerm);
  static Result<Authority> from_pem(const Issued& pem);
  // Reads the authority from `ca.pem` and `ca.key` of a folder. Returns kRefused if other users can read the
  // key.
  static Result<Authority> read(const std::string& folder);

  [[nodiscard]] Result<Issued> pem() const;
  [[nodiscard]] Result<Issued> sign(const Order& order) const;
  // Returns a certificate (PEM) for a key that was made elsewhere (request.h). The request proves that its
  // maker has the key. Everything else in the request is ignored in favor of `order`. Returns
  // kInvalidArgument if the request lacks that proof.
  [[nodiscard]] Result<std::string> certify(const std::string& request, const Order& order) const;
  // Checks whether this authority signed a certificate (PEM).
  [[nodiscard]] bool has_signed(const std::string& certificate) const;

 private:
  Authority(UniqueCertificate certificate, UniquePrivateKey key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  // Creates a certificate for the owner of the key. The public half of the key is enough.
  [[nodiscard]] Result<UniqueCertificate> make(EVP_PKEY* key, const Order& order) const;
  UniqueCertificate certificate_;
  UniquePrivateKey key_;
};

}  // namespace ckpt::tls
