// SPDX-License-Identifier: Apache-2.0
// One session (a rank of a migration) on one mover. It attaches memory, starts and ends.
// Threads: the event loop. Ownership: the session keeps its mover alive. Call end() before the object is
// destroyed. Otherwise the mover holds the job's memory until the mover exits. Errors: after a failure every
// call returns that failure, and `failed` has been called once.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/mover_client/mover_process.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

class MoverSession : public std::enable_shared_from_this<MoverSession> {
 public:
  struct Handlers {
    // Called for messages that answer none of the calls below: PlanAccepted, Progress, ..., Verified,
    // Mismatch.
    std::function<void(mover::Packet)> event;
    std::function<void(Error)> failed;  // called for SessionFailed, or for the mover's exit
  };
  static Result<std::shared_ptr<MoverSession>> open(const asio::any_io_executor& executor,
                                                    std::shared_ptr<MoverProcess> process,
                                                    mover::OpenSession request, Milliseconds timeout,
                                                    Handlers handlers);
  ~MoverSession();

  // Attaches at most mover::kMaxRegions regions. Returns when they are imported and mapped. One call may run
  // at a time, including drop_regions().
  Task<Result<void>> attach_regions(std::vector<mover::RegionInfo> regions,
                                    std::vector<UniqueFd> descriptors);
  Task<Result<void>> drop_regions(std::vector<std::uint64_t> regions);
  Result<void> attach_tensors(std::vector<wire::TensorInfo> tensors);
  Result<void> drop_tensors(std::vector<std::string> names);
  // Returns, at a target, the addresses that the source's mover needs.
  Task<Result<std::vector<std::string>>> listen();
  // Sends any other message. The function sets the session key.
  template <class M>
  Result<void> send(M message, std::vector<UniqueFd> descriptors = {}) {
    message.session = key_;
    return process_->send(message, std::move(descriptors));
  }
  // Ends the session and waits until the mover holds no memory of the job. Idempotent. `reason` is sent to
  // the other side if the migration is not over.
  Task<void> end(std::string reason = {});

  [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }

 private:
  MoverSession(const asio::any_io_executor& executor, std::shared_ptr<MoverProcess> process,
               mover::SessionKey key, Milliseconds timeout, Handlers handlers);
  void on_message(mover::Packet packet);
  void fail(const Error& error);
  Error failure_or_timeout(const char* what) const;

  std::shared_ptr<MoverProcess> process_;
  mover::SessionKey key_;
  Milliseconds timeout_;
  Handlers handlers_;
  AsyncEvent memory_;     // event that is notified at Attached and Dropped
  AsyncEvent listening_;  // event that is notified at Listening
  AsyncEvent ended_;      // event that is notified at SessionEnded
  std::uint64_t batches_ = 0;
  std::uint64_t attached_ = 0;
  std::set<std::uint64_t> dropped_;
  std::optional<std::vector<std::string>> addresses_;
  std::optional<Error> failure_;
  bool dead_ = false;  // true if the mover itself has exited, so it holds no memory
  bool over_ = false;  // true after SessionEnded has arrived
};

}  // namespace ckpt::agent
