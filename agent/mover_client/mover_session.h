// SPDX-License-Identifier: Apache-2.0
// One session (a rank of a migration) on one mover: attaching memory, starting, ending. Threads: the event
// loop. Ownership: keeps its mover; end() is needed before the object goes, or the mover holds the job's
// memory until it ends. Errors: after a failure every call gives that failure; `failed` has then been called
// once.
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
    // Messages that answer no call below: PlanAccepted, Progress, ..., Verified, Mismatch.
    std::function<void(mover::Packet)> event;
    std::function<void(Error)> failed;  // SessionFailed, or the mover's death
  };
  static Result<std::shared_ptr<MoverSession>> open(const asio::any_io_executor& executor,
                                                    std::shared_ptr<MoverProcess> process,
                                                    mover::OpenSession request, Milliseconds timeout,
                                                    Handlers handlers);
  ~MoverSession();

  // Attaches at most mover::kMaxRegions regions. Returns when they are imported and mapped. One call at a
  // time, drop_regions() included.
  Task<Result<void>> attach_regions(std::vector<mover::RegionInfo> regions,
                                    std::vector<UniqueFd> descriptors);
  Task<Result<void>> drop_regions(std::vector<std::uint64_t> regions);
  Result<void> attach_tensors(std::vector<wire::TensorInfo> tensors);
  Result<void> drop_tensors(std::vector<std::string> names);
  // Returns, at a target, the addresses that the source's mover needs.
  Task<Result<std::vector<std::string>>> listen();
  // Sends any other message. The session key is set here.
  template <class M>
  Result<void> send(M message, std::vector<UniqueFd> descriptors = {}) {
    message.session = key_;
    return process_->send(message, std::move(descriptors));
  }
  // Ends the session and waits until the mover holds nothing of the job. Idempotent.
  // `reason` goes to the other side, if the migration is not over.
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
  Signal memory_;     // Attached, Dropped
  Signal listening_;  // Listening
  Signal ended_;      // SessionEnded
  std::uint64_t batches_ = 0;
  std::uint64_t attached_ = 0;
  std::set<std::uint64_t> dropped_;
  std::optional<std::vector<std::string>> addresses_;
  std::optional<Error> failure_;
  bool dead_ = false;  // the mover itself is gone, so it holds nothing
  bool over_ = false;  // SessionEnded has come
};

}  // namespace ckpt::agent
