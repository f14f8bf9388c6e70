// SPDX-License-Identifier: Apache-2.0
// Renewals of nodes' certificates. Each renewal was issued over a connection that an earlier certificate had
// proven. Denying a certificate also denies its renewals. A certificate is renewed only when it is due.
// Threads: one io_context on one thread. Ownership: borrows the store, which outlives it. Errors: those of
// the store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/state/store.h"
#include "libckpt/net/tls/cert_peer.h"

namespace ckpt::coordinator {

class RenewedCertificates {
 public:
  explicit RenewedCertificates(Store& store) : store_(store) {}

  Result<void> load();
  Result<void> add(const tls::Peer& renewed, const tls::Peer& shown, std::int64_t now_s);
  // Records that the node has reported that it uses this certificate.
  Result<void> use(const std::string& serial);
  // Checks whether the node that presents `shown` gets another certificate. `shown`, or its renewal that is
  // in use, must be in the last third of its term. The last renewal must also be at least a thirtieth of a
  // term old.
  Result<bool> is_due(const tls::Peer& shown, std::int64_t now_s);
  // Returns all certificates that were renewed from this one, directly or indirectly.
  Result<std::vector<tls::Peer>> descendants(const std::string& serial);
  // Returns the expiry of the last renewal of `shown` that is in use. Without such a renewal, returns the
  // expiry of `shown`.
  Result<std::int64_t> end_of(const tls::Peer& shown);

 private:
  Store& store_;
};

}  // namespace ckpt::coordinator
