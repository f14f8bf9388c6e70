// SPDX-License-Identifier: Apache-2.0
// The mover of one GPU, kept running. It is started with the first job or migration there, since a full or
// faulty GPU gives no context later. After a death it is started again, with a pause that doubles up to 30 s.
// A death is reported to every open session; sessions do not survive it. Threads: the event loop. Ownership:
// the process ends with this object (its socket closes). Errors: ready() returns why there is no mover: the
// program, its start, the driver's refusal, or its log.
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
  // Starts the mover if need be and waits until it serves.
  Task<Result<void>> ready(Milliseconds timeout);
  // Subscribes to messages for this session and to the mover's death, until unsubscribe().
  void subscribe(mover::SessionKey session, Subscriber subscriber);
  void unsubscribe(mover::SessionKey session);
  // Sends a message. kUnavailable while the mover is not serving.
  Result<void> send(const mover::Message& message, std::vector<UniqueFd> descriptors = {});
  // Ends the mover for good.
  void stop();

  [[nodiscard]] bool serving() const noexcept { return state_ == State::kServing; }
  [[nodiscard]] std::uint64_t starts() const noexcept { return starts_; }
  // The time from the next death until the mover is started again.
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
  std::optional<Error> why_dropped_;  // why this side has dropped and killed it
  std::uint64_t run_ = 0;             // separates messages and ends of an earlier process
  std::uint64_t starts_ = 0;
  std::map<mover::SessionKey, Subscriber> subscribers_;
  std::list<Signal*> waiting_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
};

}  // namespace ckpt::agent
