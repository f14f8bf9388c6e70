// SPDX-License-Identifier: Apache-2.0
// The process gpumigrate-coordinator, and its resource use as the kernel counts it.
// Threads: any, once it has started. Ownership: the process, which ends with this object. Errors:
// kUnavailable if it does not start.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "tests/unit/coordinator/support/http_client.h"

namespace ckpt::scale {

class CoordinatorProcess {
 public:
  // Starts the coordinator; `settings` are lines of its configuration file.
  static Result<std::unique_ptr<CoordinatorProcess>> start(const std::string& program,
                                                           const std::string& home,
                                                           const std::string& settings);
  ~CoordinatorProcess();
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  [[nodiscard]] coordinator::test::HttpAnswer get(const std::string& target) const {
    return coordinator::test::request(api_address_, token_, "GET", target);
  }
  [[nodiscard]] coordinator::test::HttpAnswer post(const std::string& target, const std::string& body) const {
    return coordinator::test::request(api_address_, token_, "POST", target, body);
  }
  // Returns the processor time that the coordinator has used.
  [[nodiscard]] double cpu_seconds() const;
  [[nodiscard]] double resident_mib() const;
  // Returns the number of calls of write(2) and similar calls, on files and sockets.
  [[nodiscard]] std::uint64_t writes() const;

  [[nodiscard]] const std::string& api_address() const { return api_address_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] const std::string& agent_address() const { return agent_address_; }
  [[nodiscard]] const std::string& agent_token() const { return agent_token_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns the time from the coordinator's start to the file with its address.
  [[nodiscard]] double start_seconds() const { return start_seconds_; }

 private:
  explicit CoordinatorProcess(pid_t pid) : pid_(pid) {}
  Result<void> wait_until_it_listens(const std::string& home);

  pid_t pid_;
  std::string api_address_;
  std::string token_;
  std::string agent_address_;
  std::string agent_token_;
  double start_seconds_ = 0;
};

}  // namespace ckpt::scale
