// SPDX-License-Identifier: Apache-2.0
// The messages that renew a node's certificate, and that state which certificates nodes refuse. To renew, the
// coordinator requests a signing request for a new key, signs it, and sends the certificate. The key stays at
// the node. Answers are as in node_messages.h.
// Threads: plain values. Errors: none of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::wire {

struct AskForKey {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kAskForKey;
  std::uint64_t request_id = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id);
  }
};

struct KeyMade {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kKeyMade;
  std::uint64_t request_id = 0;
  std::string signing_request;  // a PKCS #10 request as PEM
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, signing_request);
  }
};

// A new certificate. The Reply is sent once the certificate and the newest key are on the node's disk.
struct UseCertificate {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kUseCertificate;
  std::uint64_t request_id = 0;
  std::string certificate;  // the certificate as PEM
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, certificate);
  }
};

// The complete list of denied certificates. It is sent to each node with a certificate, after each connect
// and at each change.
struct DenyCertificates {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDenyCertificates;
  std::vector<std::string> serials;  // serial numbers in the notation of net/tls/cert_denied.h
  template <class A>
  decltype(auto) fields(A& a) {
    return a(serials);
  }
};

}  // namespace ckpt::wire
