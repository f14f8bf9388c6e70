// SPDX-License-Identifier: Apache-2.0
// The agent's side of gpumigrate-context. That resident process has an initialized driver and sends the
// driver's checkpoint orders for other processes by pid. Therefore no cuInit adds to a downtime, and the
// agent itself makes no driver call. One order runs at a time, in the order of the calls. A helper that exits
// is started again, after a pause that doubles up to 30 s.
// Threads: the event loop. Ownership: the object's destructor closes the socket, and the helper exits after
// its current order. Errors: kNotSupported, with the reason, if the driver or this node does not support an
// order. kTimedOut if a helper hung at an order (it is killed), and kUnavailable if a helper exited. The
// order's effect is then unknown, so call state(). kRefused if the process is in a state other than the one
// that the order needs. kOutOfMemory from restore() is final for the process.
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
  std::string program;   // path of gpumigrate-context
  std::string log_path;  // the helper's standard error is appended to this file
  std::vector<std::string> environment;
  Milliseconds start_timeout{30000};
  Milliseconds first_backoff{200};
  Milliseconds max_backoff{30000};
};

// The driver of this node and what the driver supports, as the helper determined it.
struct ContextFacts {
  int driver_version = 0;  // version in the form of cuDriverGetVersion: 13000 for 13.0
  std::uint32_t devices = 0;
  std::string gpu;              // name of the first GPU
  bool can_checkpoint = false;  // true if the driver has cuCheckpointProcess*
  bool can_change_gpu = false;  // true if the restore also accepts gpuPairs (driver 580, CUDA 13.0)
  [[nodiscard]] std::string missing_support() const;  // returns what is missing; empty if nothing is
};

class ContextHelper : public std::enable_shared_from_this<ContextHelper> {
 public:
  static std::shared_ptr<ContextHelper> create(const asio::any_io_executor& executor,
                                               ContextSettings settings);
  ~ContextHelper();
  ContextHelper(const ContextHelper&) = delete;
  ContextHelper& operator=(const ContextHelper&) = delete;

  // Starts the helper unless it is running or was stopped. ready() reports a failure.
  void start();
  // Starts the helper if necessary and waits until it is ready. kNotSupported means that there is no driver,
  // or that cuInit failed (with the CUresult's name).
  Task<Result<ContextFacts>> ready();

  // Returns the driver's state of the process. This function and the following ones send an order for the
  // process whose pid on this node is `pid`. Each function first waits for ready(). `timeout` limits the
  // order itself, from the moment at which the helper receives it.
  Task<Result<context::ProcessState>> state(pid_t pid, Milliseconds timeout = Milliseconds(5000));
  // Locks the process when none of its driver calls is in progress. After kTimedOut the process is not locked
  // and continues. `timeout` is the driver's own timeout, and the helper gets slightly longer to answer.
  Task<Result<void>> lock(pid_t pid, Milliseconds timeout);
  Task<Result<void>> checkpoint(pid_t pid, Milliseconds timeout);
  // Restores the process and leaves it locked. With empty `pairs` the process is restored on the same GPUs.
  // kOutOfMemory is final: the process cannot be restored any more.
  Task<Result<void>> restore(pid_t pid, std::vector<context::GpuPair> pairs, Milliseconds timeout);
  Task<Result<void>> unlock(pid_t pid, Milliseconds timeout);
  // Returns the thread of `pid` in which the driver restores. The thread must run during the restore, so
  // CRIU's caller continues it first.
  Task<Result<pid_t>> restore_thread(pid_t pid, Milliseconds timeout = Milliseconds(5000));

  // Terminates the helper and starts no new one. Orders in progress fail with kAborted.
  void stop();
  [[nodiscard]] bool serving() const noexcept { return state_ == State::kServing; }
  [[nodiscard]] pid_t pid() const noexcept { return process_ ? process_->pid() : 0; }

 private:
  enum class State { kIdle, kStarting, kServing, kWaiting, kStopped };
  struct Pending;  // an order that is in progress or waits for its turn
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
  std::optional<Error> ended_;  // reason why the process exited; the helper counts as gone only after its
                                // link is closed, too
  bool link_closed_ = false;
  std::uint64_t run_ = 0;  // number of the helper's current run; packets and exits of earlier runs are
                           // ignored
  std::uint64_t next_order_ = 1;
  std::deque<std::shared_ptr<Pending>> queue_;  // orders in the sequence in which they are sent; the first
                                                // one has already been sent
  std::deque<AsyncEvent*> waiting_;
  asio::steady_timer restart_;
  Milliseconds backoff_;
};

}  // namespace ckpt::agent
