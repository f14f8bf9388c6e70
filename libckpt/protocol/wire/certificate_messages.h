// SPDX-License-Identifier: Apache-2.0
// How a node's certificate is renewed: the coordinator asks for a new key's request, signs it, and sends the
// certificate. The key stays at the node. Answers are as in node_messages.h. And which certificates nodes refuse.
// Threads: values. Errors: none of their own.
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
  std::string signing_request;  // PKCS #10 as PEM
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, signing_request);
  }
};

// Answered with a Reply once the certificate and the last key that was made are on the node's disk.
struct UseCertificate {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kUseCertificate;
  std::uint64_t request_id = 0;
  std::string certificate;  // PEM
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, certificate);
  }
};

// To each node with a certificate, when it has connected and at each change: these are denied, and no others.
struct DenyCertificates {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kDenyCertificates;
  std::vector<std::string> serials;  // net/tls/cert_denied.h
  template <class A>
  decltype(auto) fields(A& a) {
    return a(serials);
  }
};

}  // namespace ckpt::wire
