// SPDX-License-Identifier: Apache-2.0
// A rank's connection to its keeper: greeting, control page, sending from any thread.
// Threads: any thread calls send(), and only the service thread calls receive(). Ownership: the socket and
// the page's mapping. Errors: kUnavailable (no keeper), kRefused (the keeper refuses this process),
// kProtocol.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/barrier_count.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::local {

class KeeperLink {
 public:
  // Connects to the keeper. With `restored`, this rank left its keeper with DumpReady and now returns.
  static Result<std::unique_ptr<KeeperLink>> connect(const std::string& path,
                                                     MigrationMode mode = MigrationMode::kCooperative,
                                                     bool restored = false);

  [[nodiscard]] const Welcome& welcome() const { return welcome_; }
  [[nodiscard]] const ControlPageMapping& page() const { return page_; }
  // Returns whether barriers are counted, which is true for a rank of a gang.
  [[nodiscard]] bool counts_barriers() const { return barriers_.has_value(); }
  // Counts a barrier. Call it at each barrier, before the page is read. Returns 0 if barriers are not
  // counted.
  std::uint64_t count_barrier() { return barriers_ ? barriers_->count() : 0; }
  // Sets the barrier at which the previous instance waited, which this instance continues.
  void go_on_from_barrier(std::uint64_t barrier) {
    if (barriers_) barriers_->go_on_from(barrier);
  }
  [[nodiscard]] int fd() const { return socket_.fd(); }

  Result<void> send(std::uint64_t request, Body body, std::span<const int> descriptors = {});
  Result<Received> receive() { return socket_.receive(); }
  // Sends `last` and closes the socket. Before that, everything else that belongs to the keeper is removed
  // from this process. The link cannot be used afterwards.
  Result<void> leave(std::uint64_t request, Body last);

 private:
  KeeperLink(Socket socket, ControlPageMapping page, std::optional<BarrierCount> barriers, Welcome welcome)
      : socket_(std::move(socket)),
        page_(std::move(page)),
        barriers_(std::move(barriers)),
        welcome_(welcome) {}
  Socket socket_;
  ControlPageMapping page_;
  std::optional<BarrierCount> barriers_;
  Welcome welcome_;
  std::mutex send_mutex_;
};

}  // namespace ckpt::local
