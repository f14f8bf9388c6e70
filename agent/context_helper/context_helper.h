// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-context. That resident process holds an initialised driver and gives its
// checkpoint orders for other processes by pid. So no cuInit falls into a downtime, and the agent itself
// makes no driver call. One order at a time, in the order of the calls. A helper that dies is started again
// with a pause that doubles up to 30 s.
// Threads: the event loop. Ownership: the process ends with this object (its socket closes, after the order
// it is at).
// Errors: kNotSupported, with the reason, where the driver or this node cannot do it. kTimedOut and
// kUnavailable when a helper hung at an order (it is killed) or died. The order's effect is unknown then: ask
// state(). kRefused for a process in another state than the order needs. kOutOfMemory from restore() is final
// for the process.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/context_helper/messages.h"
#include "agent/io/packet_link.h"
#include "agent/io/process.h"

namespace ckpt::agent {

struct ContextSettings {
  std::string program;   // gpumigrate-context
  std::string log_path;  // its standard error is appended here
  std::vector<std::string> environment;
  Milliseconds start_timeout{30000};
  Milliseconds first_backoff{200};
  Milliseconds max_backoff{30000};
};

// The driver of this node and its abilities, as the helper found them.
struct ContextFacts {
  int driver_version = 0;  // in the form of cuDriverGetVersion: 13000 for 13.0
  std::uint32_t devices = 0;
  std::string gpu;                        // the first one's name
  bool can_checkpoint = false;            // it has cuCheckpointProcess*
  bool can_change_gpu = false;            // and its restore takes gpuPairs (driver 580, CUDA 13.0)
  [[nodiscard]] std::string why() const;  // what is missing; empty: nothing
};

class ContextHelper : public std::enable_shared_from_this<ContextHelper> {
 public:
  static std::shared_ptr<ContextHelper> create(const asio::any_io_executor& executor,
                                               ContextSettings settings);
  ~ContextHelper();
  ContextHelper(const ContextHelper&) = delete;
  ContextHelper& operator=(const ContextHelper&) = delete;

  // Starts the helper if it is not running and was not stopped. ready() reports a failure.
  void start();
  // Starts the helper if need be and waits until it serves. kNotSupported: no driver, or cuInit failed (with
  // the CUresult's name).
  Task<Result<ContextFacts>> ready();

  // Orders for the process `pid` as this node counts; each waits for ready() first. `timeout` bounds the
  // order itself, from the moment the helper gets it.
  Task<Result<context::ProcessState>> state(pid_t pid, Milliseconds timeout = Milliseconds(5000));
  // Locks the process once no driver call of it is under way. On kTimedOut the process is not locked and goes
  // on. The driver's own timeout is `timeout`; the helper gets a little longer to answer.
  Task<Result<void>> lock(pid_t pid, Milliseconds timeout);
  Task<Result<void>> checkpoint(pid_t pid, Milliseconds timeout);
  // Restores the process and leaves it locked; with empty `pairs` on the same GPUs. kOutOfMemory is final: it
  // cannot be restored any more.
  Task<Result<void>> restore(pid_t pid, std::vector<context::GpuPair> pairs, Milliseconds timeout);
  Task<Result<void>> unlock(pid_t pid, Milliseconds timeout);
  // Returns the thread of `pid` in which the driver restores. It must run for that, so CRIU's caller lets it
  // go on first.
  Task<Result<pid_t>> restore_thread(pid_t pid, Milliseconds timeout = Milliseconds(5000));

  // Ends the helper for good; orders under way fail with kAborted.
  void stop();
  [[nodiscard]] bool serving() const noexcept { return state_ == State::kServing; }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : 0; }

 private:
  enum class State { kIdle, kStarting, kServing, kWaiting, kStopped };
  struct Pending;  // one order under way or waiting for its turn
  ContextHelper(const asio::any_io_executor& executor, ContextSettings settings);
  Result<void> launch();
  void on_packet(const Packet& packet);
  void on_ready(const context::Answer& answer);
  void on_half_gone();
  void on_gone(Error error, bool start_again);
  void fail_pending(const Error& error);
  void send_next();
  void wake();
  Task<Result<context::Answer>> perform(context::Order order, Milliseconds timeout);
  Task<Result<void>> perform_plain(context::Kind kind, pid_t pid, Milliseconds timeout);

  asio::any_io_executor executor_;
  ContextSettings settings_;
  State state_ = State::kIdle;
  ContextFacts facts_;
  Error last_error_{ErrorCode::kUnavailable, "not started"};
  std::shared_ptr<ChildProcess> process_;
  std::shared_ptr<PacketLink> link_;
  std::optional<Error> ended_;  // why the process ended; it is gone once its link is closed, too
  bool link_closed_ = false;
  std::uint64_t run_ = 0;  // distinguishes packets and ends of an earlier process
  std::uint64_t next_order_ = 1;
  std::deque<std::shared_ptr<Pending>> queue_;  // the first has been sent
  std::deque<Signal*> waiting_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
};

}  // namespace ckpt::agent
