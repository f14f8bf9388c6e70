// SPDX-License-Identifier: Apache-2.0
// Renewals of nodes' certificates: each was given over a connection that an earlier certificate had proven.
// Denying a certificate also denies its renewals. Each is renewed when it is due, and not more often.
// Threads: one io_context on one thread. Ownership: borrows the store, which outlives it. Errors: those of the store.
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
  // The node has said that it uses it.
  Result<void> use(const std::string& serial);
  // Whether the node that shows this one gets another: it, or the one in use that was given for it, is in the last
  // third of its term; and the last one was given a thirtieth of a term ago or earlier.
  Result<bool> is_due(const tls::Peer& shown, std::int64_t now_s);
  // All that came of it, over any number of steps.
  Result<std::vector<tls::Peer>> descendants(const std::string& serial);
  // When the last one in use that was given for `shown` ends, or that one itself.
  Result<std::int64_t> end_of(const tls::Peer& shown);

 private:
  Store& store_;
};

}  // namespace ckpt::coordinator
