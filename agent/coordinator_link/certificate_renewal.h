// SPDX-License-Identifier: Apache-2.0
// Answers the coordinator's AskForKey and UseCertificate: a new key and certificate of this node, in the
// files that [tls] names. New connections use them; those that are open stay. A key is made here and kept in
// memory until its certificate comes.
// Threads: the event loop; keys are made and files are written on `pool`. Ownership: refers to its parts,
// which outlive it. Errors: go to the coordinator, and the former pair stays in use.
#pragma once

#include <string>

#include "agent/coordinator_link/coordinator_link.h"
#include "libckpt/net/tls/cert_identity.h"
#include "libckpt/protocol/wire/certificate_messages.h"

namespace ckpt::agent {

class CertificateRenewal {
 public:
  // Takes its frames from `link`, which must not have been started.
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
  std::string key_;  // of the last request; empty: none waits for its certificate
};

}  // namespace ckpt::agent
