// SPDX-License-Identifier: Apache-2.0
// The nodes whose names are denied. Of such a name a certificate is good only if this cluster has given it since, by a
// join token or a renewal. So one that was never seen here is refused, too.
// Threads: one io_context on one thread. Ownership: borrows the store, which outlives it. Errors: those of the store;
// kNotFound for a name that is not denied.
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
    std::set<std::string> good;  // serials of certificates that were given since
  };
  explicit DeniedNodes(Store& store) : store_(store) {}

  Result<void> load();
  [[nodiscard]] const std::map<std::string, Entry>& all() const noexcept { return entries_; }
  [[nodiscard]] bool denies(const tls::Peer& peer) const;
  // Denies all certificates of that name, also those that an earlier denial's Entry::good lists.
  Result<void> deny(const std::string& node, const std::string& reason, std::int64_t now_ms);
  Result<void> allow(const std::string& node);
  // This cluster has given that certificate.
  Result<void> given(const std::string& node, const std::string& serial);

 private:
  Store& store_;
  std::map<std::string, Entry> entries_;
};

}  // namespace ckpt::coordinator
