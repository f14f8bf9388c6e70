// SPDX-License-Identifier: Apache-2.0
// Keys and requests for certificates (PKCS #10, RFC 2986), as PEM text. A machine makes both itself, so that its
// key never leaves it.
// Threads: pure functions. Errors: kInvalidArgument for text that is not usable; kInternal with OpenSSL's text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_handles.h"
#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::tls {

inline constexpr std::size_t kMaxPemBytes = std::size_t{64} << 10;

struct SigningRequest {
  std::string request;
  std::string key;  // the caller's to protect
};
// `addresses`: IP addresses of the machine, which the request asks for.
Result<SigningRequest> make_signing_request(const std::vector<std::string>& addresses = {});
// The public key that a request names, and proves to have.
Result<UniquePrivateKey> key_of_request(const std::string& request);
// The IP addresses that a request asks for, the first kMaxAddresses of them. Names are left out: one may be any
// machine's.
inline constexpr std::size_t kMaxAddresses = 8;
Result<std::vector<std::string>> addresses_of_request(const std::string& request);

Result<UniquePrivateKey> make_private_key();  // P-256
Result<UniqueCertificate> certificate_of(const std::string& pem);
// The IP addresses and DNS names that stand beside the name of its part of the cluster.
Result<std::vector<std::string>> hosts_of(const std::string& certificate);
// Returns the peer that the certificate names. An error if the certificate does not belong to the key.
Result<Peer> peer_with_key(const std::string& certificate, const std::string& key);

Result<std::string> pem_of(X509* certificate);
Result<std::string> pem_of(EVP_PKEY* key);

}  // namespace ckpt::tls
