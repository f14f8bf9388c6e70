// SPDX-License-Identifier: Apache-2.0
// The peer that a certificate names, by one DNS name: `coordinator.gpumigrate`, `NODE.node.gpumigrate`,
// `ROLE.client.gpumigrate`, or `ID.NODE.join.gpumigrate` (a joiner: it may become a node once). Names of
// machines may stand beside it. Names are compared as they are, since nodes "a" and "A" are two.
// Threads: pure functions. Errors: kRefused for a certificate without such a name, or with two.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::tls {

inline constexpr std::size_t kJoinIdLength = 16;

struct Peer {
  enum class Kind : std::uint8_t { kNobody, kCoordinator, kNode, kClient, kJoiner };
  Kind kind = Kind::kNobody;
  std::string name;  // of the node, the role of the client, or "ID.NODE" of a joiner
  // The certificate that showed it, and its end in seconds since 1970; else empty and 0.
  std::string serial{};
  std::int64_t ends_s = 0;
  // The same part of the cluster, by whatever certificate.
  friend bool operator==(const Peer& a, const Peer& b) { return a.kind == b.kind && a.name == b.name; }

  static Peer coordinator() { return {Kind::kCoordinator, {}}; }
  static Peer node(std::string name) { return {Kind::kNode, std::move(name)}; }
  static Peer client(std::string role) { return {Kind::kClient, std::move(role)}; }
  // `id`: kJoinIdLength small hexadecimal digits.
  static Peer joiner(const std::string& id, const std::string& node) {
    return {Kind::kJoiner, id + "." + node};
  }
};

// "node a", for people.
[[nodiscard]] std::string to_text(const Peer& peer);
// The DNS name that stands for it; empty for nobody.
[[nodiscard]] std::string dns_name_of(const Peer& peer);
// Nobody for other names.
[[nodiscard]] Peer peer_of_dns_name(std::string_view name);
Result<Peer> peer_of(X509* certificate);
// The other side of a connection whose handshake is done and whose chain was verified.
Result<Peer> verified_peer(const SSL* ssl);

}  // namespace ckpt::tls
