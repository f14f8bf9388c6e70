// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/tls/cert_peer.h"

#include <openssl/x509v3.h>

#include <algorithm>

#include "libckpt/net/tls/cert_denied.h"
#include "libckpt/net/tls/cert_handles.h"

namespace ckpt::tls {
namespace {

constexpr std::string_view kCoordinatorName = "coordinator.gpumigrate";
constexpr std::string_view kNodeEnding = ".node.gpumigrate";
constexpr std::string_view kClientEnding = ".client.gpumigrate";
constexpr std::string_view kJoinEnding = ".join.gpumigrate";
constexpr std::size_t kMaxNameBytes = 63;

struct NamesTraits {
  using Value = GENERAL_NAMES*;
  static constexpr Value kNull = nullptr;
  static void close(Value names) noexcept { GENERAL_NAMES_free(names); }
};

// Checks whether the name uses the alphabet of node names.
bool is_plain(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name.front() == '.') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
         std::string_view::npos;
}

bool is_joiner(std::string_view name) {
  return name.size() > kJoinIdLength && name[kJoinIdLength] == '.' &&
         name.substr(0, kJoinIdLength).find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         is_plain(name.substr(kJoinIdLength + 1));
}

}  // namespace

std::string to_text(const Peer& peer) {
  switch (peer.kind) {
    case Peer::Kind::kCoordinator:
      return "the coordinator";
    case Peer::Kind::kNode:
      return "node " + peer.name;
    case Peer::Kind::kClient:
      return "a client, role " + peer.name;
    case Peer::Kind::kJoiner:
      return "a host that may join as node " +
             peer.name.substr(std::min(peer.name.size(), kJoinIdLength + 1));
    case Peer::Kind::kNobody:
      break;
  }
  return "nobody";
}

std::string dns_name_of(const Peer& peer) {
  switch (peer.kind) {
    case Peer::Kind::kCoordinator:
      return std::string(kCoordinatorName);
    case Peer::Kind::kNode:
      return peer.name + std::string(kNodeEnding);
    case Peer::Kind::kClient:
      return peer.name + std::string(kClientEnding);
    case Peer::Kind::kJoiner:
      return peer.name + std::string(kJoinEnding);
    case Peer::Kind::kNobody:
      break;
  }
  return {};
}

Peer peer_of_dns_name(std::string_view name) {
  if (name == kCoordinatorName) return Peer::coordinator();
  const auto before = [name](std::string_view ending) {
    return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : std::string_view();
  };
  if (const auto node = before(kNodeEnding); is_plain(node)) return Peer::node(std::string(node));
  if (const auto role = before(kClientEnding); is_plain(role)) return Peer::client(std::string(role));
  if (const auto joiner = before(kJoinEnding); is_joiner(joiner))
    return Peer::joiner(std::string(joiner.substr(0, kJoinIdLength)),
                        std::string(joiner.substr(kJoinIdLength + 1)));
  return {};
}

Result<Peer> peer_of(X509* certificate) {
  const UniqueHandle<NamesTraits> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  Peer found;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS) continue;
    const std::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                                static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName)));
    Peer peer = peer_of_dns_name(text);
    if (peer.kind == Peer::Kind::kNobody) continue;
    if (found.kind != Peer::Kind::kNobody && !(found == peer))
      return Error(ErrorCode::kRefused,
                   "The certificate is that of " + to_text(found) + " and of " + to_text(peer));
    found = std::move(peer);
  }
  if (found.kind == Peer::Kind::kNobody)
    return Error(ErrorCode::kRefused,
                 "The certificate does not name a coordinator, node or client of a gpumigrate cluster");
  found.serial = serial_of(certificate);
  found.ends_s = end_of(certificate);
  if (found.serial.empty())
    return Error(ErrorCode::kRefused,
                 "The certificate of " + to_text(found) + " has no usable serial number");
  return found;
}

Result<Peer> verified_peer(const SSL* ssl) {
  const UniqueCertificate certificate(SSL_get1_peer_certificate(ssl));
  if (!certificate) return Error(ErrorCode::kRefused, "The other side did not present a certificate");
  if (const long result = SSL_get_verify_result(ssl); result != X509_V_OK)
    return Error(ErrorCode::kRefused, std::string("The other side's certificate is not valid: ") +
                                          X509_verify_cert_error_string(result));
  return peer_of(certificate.get());
}

}  // namespace ckpt::tls
