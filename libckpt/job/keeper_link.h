// SPDX-License-Identifier: Apache-2.0
// A rank's connection to its keeper: greeting, control page, sending from any thread.
// Threads: send() from any, receive() from the service thread only. Ownership: the socket and the page's mapping.
// Errors: kUnavailable (no keeper), kRefused (it does not want this process), kProtocol.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/local/control_page.h"
#include "libckpt/local/socket.h"

namespace ckpt::job {

class KeeperLink {
 public:
  static Result<std::unique_ptr<KeeperLink>> connect(const std::string& path);

  [[nodiscard]] const local::Welcome& welcome() const { return welcome_; }
  [[nodiscard]] const local::ControlPageMapping& page() const { return page_; }
  [[nodiscard]] int fd() const { return socket_.fd(); }

  Result<void> send(std::uint64_t request, local::Body body, std::span<const int> descriptors = {});
  Result<local::Received> receive() { return socket_.receive(); }

 private:
  KeeperLink(local::Socket socket, local::ControlPageMapping page, local::Welcome welcome)
      : socket_(std::move(socket)), page_(std::move(page)), welcome_(welcome) {}
  local::Socket socket_;
  local::ControlPageMapping page_;
  local::Welcome welcome_;
  std::mutex send_mutex_;
};

}  // namespace ckpt::job
