// SPDX-License-Identifier: Apache-2.0
// The mover of one GPU, which is kept running. It is started with the first job or migration on the GPU,
// because a full or faulty GPU provides no context later. After its exit the mover is started again, with a
// pause that doubles up to 30 s. Its exit is reported to every open session, and no session survives it.
// Threads: the event loop. Ownership: the object's destructor closes the mover's socket, so the mover exits.
// Errors: ready() returns the reason why there is no mover: the program, its start, the driver's refusal, or
// its log.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/io/process.h"
#include "agent/mover_client/mover_link.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {

struct MoverSettings {
  std::string program;
  std::string log_path;
  mover::Configure configure;
  Milliseconds first_backoff{200};
  Milliseconds max_backoff{30000};
};

class MoverProcess : public std::enable_shared_from_this<MoverProcess> {
 public:
  struct Subscriber {
    std::function<void(mover::Packet)> message;
    std::function<void(Error)> died;
  };
  static std::shared_ptr<MoverProcess> create(const asio::any_io_executor& executor, MoverSettings settings);
  ~MoverProcess();

  // Starts the mover if it is not running and stop() was not called.
  void start();
  // Starts the mover if necessary and waits until it is ready.
  Task<Result<void>> ready(Milliseconds timeout);
  // Subscribes to messages for this session and to the mover's exit, until unsubscribe().
  void subscribe(mover::SessionKey session, Subscriber subscriber);
  void unsubscribe(mover::SessionKey session);
  // Sends a message. The error is kUnavailable while the mover is not ready.
  Result<void> send(const mover::Message& message, std::vector<UniqueFd> descriptors = {});
  // Terminates the mover and starts no other.
  void stop();

  [[nodiscard]] bool serving() const noexcept { return state_ == State::kServing; }
  [[nodiscard]] std::uint64_t starts() const noexcept { return starts_; }
  // Returns the time between the mover's next exit and its restart.
  [[nodiscard]] Milliseconds next_pause() const noexcept { return backoff_; }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : 0; }

 private:
  enum class State { kIdle, kStarting, kServing, kWaiting, kStopped };
  MoverProcess(const asio::any_io_executor& executor, MoverSettings settings);
  Result<void> launch();
  void on_message(mover::Packet packet);
  void on_gone(const Error& error);
  void wake();

  asio::any_io_executor executor_;
  MoverSettings settings_;
  State state_ = State::kIdle;
  Error last_error_{ErrorCode::kUnavailable, "not started"};
  std::shared_ptr<ChildProcess> process_;
  std::shared_ptr<MoverLink> link_;
  std::optional<Error> drop_reason_;  // the reason why this side has dropped and killed the mover
  std::uint64_t run_ = 0;             // number of the mover's current run; messages and exits of earlier runs
                                      // are ignored
  std::uint64_t starts_ = 0;
  std::map<mover::SessionKey, Subscriber> subscribers_;
  std::list<AsyncEvent*> waiting_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
};

}  // namespace ckpt::agent
