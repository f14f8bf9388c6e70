// SPDX-License-Identifier: Apache-2.0
// The peer that a certificate names, by exactly one DNS name: `coordinator.gpumigrate`,
// `NODE.node.gpumigrate`, `ROLE.client.gpumigrate`, or `ID.NODE.join.gpumigrate`. The last form names a
// joiner, which may become a node once. The certificate may also contain names of machines. Names are
// compared case-sensitively, since nodes "a" and "A" are different.
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
  std::string name;  // the name of the node, the role of the client, or "ID.NODE" of a joiner
  // The serial number of the peer's certificate, and its expiry in seconds since 1970. Without a certificate,
  // the fields are empty and 0.
  std::string serial{};
  std::int64_t ends_s = 0;
  // Compares kind and name of the peers, not their certificates.
  friend bool operator==(const Peer& a, const Peer& b) { return a.kind == b.kind && a.name == b.name; }

  static Peer coordinator() { return {Kind::kCoordinator, {}}; }
  static Peer node(std::string name) { return {Kind::kNode, std::move(name)}; }
  static Peer client(std::string role) { return {Kind::kClient, std::move(role)}; }
  // Returns a joiner. `id` consists of kJoinIdLength lower-case hexadecimal digits.
  static Peer joiner(const std::string& id, const std::string& node) {
    return {Kind::kJoiner, id + "." + node};
  }
};

// Returns a text for people, such as "node a".
[[nodiscard]] std::string to_text(const Peer& peer);
// Returns the DNS name of the peer. Returns an empty string for nobody.
[[nodiscard]] std::string dns_name_of(const Peer& peer);
// Returns the peer of the name. Returns nobody for names of a different form.
[[nodiscard]] Peer peer_of_dns_name(std::string_view name);
Result<Peer> peer_of(X509* certificate);
// Returns the peer of a connection whose handshake is done and whose certificate chain was verified.
Result<Peer> verified_peer(const SSL* ssl);

}  // namespace ckpt::tls
