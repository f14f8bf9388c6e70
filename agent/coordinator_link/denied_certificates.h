// SPDX-License-Identifier: Apache-2.0
// Receives the coordinator's list of denied certificates and stores it in a file. The list therefore stays
// valid after a restart without the coordinator. A list applies from the moment it arrives.
// Threads: the event loop. `pool` writes the file. Ownership: the object refers to its parts, which outlive
// it. Errors: a malformed list closes the connection. A failure to write the file is logged. load() reports a
// damaged file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/coordinator_link/coordinator_link.h"
#include "libckpt/net/tls/cert_denied.h"
#include "libckpt/protocol/wire/certificate_messages.h"

namespace ckpt::agent {

class DeniedCertificates {
 public:
  // Loads the serials that an earlier run stored. Without the file no serial is denied. The function blocks
  // for the disk.
  static Result<void> load(const std::string& file, tls::DeniedSerials& denied);

  // Registers its frame handler with `link`, which must not have been started. `changed` is called after a
  // new list has arrived, so that open connections are checked against it.
  DeniedCertificates(CoordinatorLink& link, std::shared_ptr<tls::DeniedSerials> denied, std::string file,
                     control::asio::thread_pool& pool, control::asio::any_io_executor executor,
                     std::function<void()> changed);
  DeniedCertificates(const DeniedCertificates&) = delete;
  DeniedCertificates& operator=(const DeniedCertificates&) = delete;

 private:
  control::Task<> write();

  std::shared_ptr<tls::DeniedSerials> denied_;
  const std::string file_;
  control::asio::thread_pool& pool_;
  control::asio::any_io_executor executor_;
  std::function<void()> changed_;
  bool writing_ = false;
  bool written_ = true;  // true if the file contains the current list
};

}  // namespace ckpt::agent
