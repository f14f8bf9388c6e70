// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's AskForKey and UseCertificate. A new key and certificate of this node are stored
// in the files that [tls] names. New connections use them, and open connections are not affected. The key is
// created here and stays in memory until its certificate arrives.
// Threads: the event loop. `pool` creates keys and writes files. Ownership: the object refers to its parts,
// which outlive it. Errors: they are sent to the coordinator, and the former pair stays in use.
#pragma once

#include <string>

#include "agent/coordinator_link/coordinator_link.h"
#include "libckpt/net/tls/cert_identity.h"
#include "libckpt/protocol/wire/certificate_messages.h"

namespace ckpt::agent {

class CertificateRenewal {
 public:
  // Registers its frame handlers with `link`, which must not have been started.
  CertificateRenewal(CoordinatorLink& link, tls::Identity& identity, control::asio::thread_pool& pool,
                     control::asio::any_io_executor executor);
  CertificateRenewal(const CertificateRenewal&) = delete;
  CertificateRenewal& operator=(const CertificateRenewal&) = delete;

 private:
  control::Task<> make_key(wire::AskForKey request);
  control::Task<> use(wire::UseCertificate request);

  CoordinatorLink& link_;
  tls::Identity& identity_;
  control::asio::thread_pool& pool_;
  control::asio::any_io_executor executor_;
  std::string key_;  // key of the last request; empty if no key waits for its certificate
};

}  // namespace ckpt::agent
