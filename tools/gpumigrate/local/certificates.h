// SPDX-License-Identifier: Apache-2.0
// The certificates of a local cluster. Its authority is HOME/tls, and no user action is needed. Each daemon
// gets a new certificate before it starts, and renews it while it runs.
// Threads: one. Errors: those of tls::issue().
#pragma once

#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::cli {

Result<void> certify_local_coordinator(const std::string& home);
Result<void> certify_local_node(const std::string& home, const std::string& node);
// These functions return the lines of coordinator.toml, or of the node's agent.toml, that name the
// certificates.
[[nodiscard]] std::string coordinator_security(const std::string& home);
[[nodiscard]] std::string node_security(const std::string& home, const std::string& node);
// Returns the certificate with which Prometheus reads the metrics of coordinator and agents.
[[nodiscard]] tls::CertFiles metrics_certificate(const std::string& home);

}  // namespace ckpt::cli
