// SPDX-License-Identifier: Apache-2.0
// Keys and certificate requests (PKCS #10, RFC 2986), as PEM text. A machine makes both locally, so that its
// key never leaves the machine.
// Threads: pure functions. Errors: kInvalidArgument for unusable text; kInternal with OpenSSL's text.
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
  std::string key;  // the private key, which the caller must protect
};
// Creates a request for a certificate. `addresses` are the machine's IP addresses that the request names.
Result<SigningRequest> make_signing_request(const std::vector<std::string>& addresses = {});
// Returns the public key that a request names. Returns an error unless the request's signature proves
// possession of the private key.
Result<UniquePrivateKey> key_of_request(const std::string& request);
// Returns the first kMaxAddresses IP addresses in a request. DNS names are ignored, because a request could
// name any machine.
inline constexpr std::size_t kMaxAddresses = 8;
Result<std::vector<std::string>> addresses_of_request(const std::string& request);

Result<UniquePrivateKey> make_private_key();  // makes a P-256 key
Result<UniqueCertificate> certificate_of(const std::string& pem);
// Returns the IP addresses and DNS names that a certificate contains in addition to the name of its peer
// (cert_peer.h).
Result<std::vector<std::string>> hosts_of(const std::string& certificate);
// Returns the peer that the certificate names. Returns an error if the key does not match the certificate.
Result<Peer> peer_with_key(const std::string& certificate, const std::string& key);

Result<std::string> pem_of(X509* certificate);
Result<std::string> pem_of(EVP_PKEY* key);

}  // namespace ckpt::tls
