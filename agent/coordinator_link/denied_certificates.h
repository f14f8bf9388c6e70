// SPDX-License-Identifier: Apache-2.0
// Takes the coordinator's list of denied certificates and keeps it in a file, so that it holds after a
// restart without the coordinator. It holds from the moment it comes.
// Threads: the event loop; the file is written on `pool`. Ownership: refers to its parts, which outlive it.
// Errors: a malformed list ends the connection; a file that cannot be written is logged. load(): a damaged
// file.
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
  // Loads the serials that the last run has kept; without the file none are denied. Blocks for the disk.
  static Result<void> load(const std::string& file, tls::DeniedSerials& denied);

  // Takes its frame from `link`, which must not have been started. `changed`: connections are to be looked
  // at.
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
  bool written_ = true;  // the file has the present list
};

}  // namespace ckpt::agent
