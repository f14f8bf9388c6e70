// SPDX-License-Identifier: Apache-2.0
// The nodes whose names are denied. A certificate with a denied name is valid only if this cluster has issued
// it since the denial, by a join token or a renewal. Therefore a certificate that this cluster has never seen
// is also refused.
// Threads: one io_context on one thread. Ownership: borrows the store, which outlives it. Errors: those of
// the store; kNotFound for a name that is not denied.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "coordinator/state/store.h"
#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::coordinator {

class DeniedNodes {
 public:
  struct Entry {
    std::string reason;
    std::int64_t since_ms = 0;
    std::set<std::string> good;  // serials of certificates that were issued after the denial
  };
  explicit DeniedNodes(Store& store) : store_(store) {}

  Result<void> load();
  [[nodiscard]] const std::map<std::string, Entry>& all() const noexcept { return entries_; }
  [[nodiscard]] bool denies(const tls::Peer& peer) const;
  // Denies all certificates of that name, including those in the Entry::good of an earlier denial.
  Result<void> deny(const std::string& node, const std::string& reason, std::int64_t now_ms);
  Result<void> allow(const std::string& node);
  // Records that this cluster has issued the certificate. If the node's name is denied, this certificate is
  // valid nevertheless.
  Result<void> given(const std::string& node, const std::string& serial);

 private:
  Store& store_;
  std::map<std::string, Entry> entries_;
};

}  // namespace ckpt::coordinator
