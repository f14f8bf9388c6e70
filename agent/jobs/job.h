// SPDX-License-Identifier: Apache-2.0
// One instance of a job on this node: its folder, its keeper, and its state as the coordinator receives it.
// The keeper is started detached, in its own session, and outlives the agent. A restarted agent finds the
// keeper by its socket.
// Threads: the event loop. Ownership: the job table and the migrations that involve the job share it. This
// class terminates no job without an order. Errors: start() and rediscover() return the reason. If the keeper
// is proven to have exited, the instance has ended. If the keeper only does not answer, the instance is
// unknown. No other instance may then take its place. The keeper is queried until it answers or is proven to
// have exited.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "agent/io/file_watch.h"
#include "agent/io/process.h"
#include "agent/jobs/job_record.h"
#include "agent/jobs/keeper_files.h"
#include "agent/jobs/keeper_link.h"
#include "agent/settings/config.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

class Job;

// The agent's interface for its jobs.
// Threads: the event loop. Ownership: outlives the jobs. Errors: those of save_before_kill().
class JobOwner {
 public:
  virtual ~JobOwner() = default;
  // Handles a change of an instance that has been announced.
  virtual void job_changed(const std::shared_ptr<Job>& job) = 0;
  // Handles the first answer of an instance whose state was unknown.
  virtual void known_again(const std::shared_ptr<Job>& job) = 0;
  // Saves the context of a restored job that is about to be killed (last_save.h). Returns the reason if the
  // context is not saved; the job is killed in any case.
  virtual control::Task<Result<void>> save_before_kill(std::shared_ptr<Job> job) = 0;
};

struct JobEnvironment {
  const Config& config;
  asio::any_io_executor executor;
  FileWatch& files;
  std::string keeper_program;
  JobOwner& owner;
  asio::thread_pool& records;  // thread pool that writes the records for which a paused job waits
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  // Creates the folder, starts the keeper and attaches to it. The rank may still be starting afterwards.
  static Task<Result<std::shared_ptr<Job>>> start(const JobEnvironment& environment, JobRecord record,
                                                  std::optional<HostRestore> restore = {});
  // Finds an instance of an earlier agent. The function attaches to the instance's keeper, or determines that
  // the keeper has exited.
  static Task<Result<std::shared_ptr<Job>>> rediscover(const JobEnvironment& environment, std::string folder);

  [[nodiscard]] wire::JobId id() const noexcept { return record_.spec.job; }
  [[nodiscard]] wire::Incarnation started_as() const noexcept { return record_.spec.incarnation; }
  [[nodiscard]] wire::Incarnation incarnation() const noexcept { return record_.incarnation; }
  [[nodiscard]] const JobRecord& record() const noexcept { return record_; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  // Removes the folder of an ended instance after its queued writes. The table calls this function.
  Task<> remove_folder();
  [[nodiscard]] std::string log_path() const { return folder_ + "/out.log"; }
  [[nodiscard]] std::uint32_t gpu() const noexcept { return gpu_of(record_.spec.ranks); }
  // Returns the link to the keeper, or null while the instance is unknown and after its end.
  [[nodiscard]] std::shared_ptr<KeeperLink> keeper() const noexcept { return unknown_ ? nullptr : keeper_; }
  [[nodiscard]] local::Phase phase() const noexcept { return phase_; }
  [[nodiscard]] bool ended() const noexcept { return record_.ended; }
  // Checks whether the keeper does not answer and is not proven to have exited. The instance may then still
  // run.
  [[nodiscard]] bool unknown() const noexcept { return unknown_; }
  // Waits until the keeper answers or is proven to have exited, or until the deadline.
  Task<> known(std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());
  // Checks whether the keeper has reported to this agent that it stopped or killed the rank.
  [[nodiscard]] bool ended_on_request() const noexcept { return ended_on_request_; }
  // Checks whether the instance was ordered to exit because the job runs elsewhere.
  [[nodiscard]] bool leaving() const noexcept { return leaving_; }
  [[nodiscard]] const local::StateSummary& summary() const noexcept { return summary_; }
  [[nodiscard]] wire::JobInstance instance() const;
  [[nodiscard]] std::uint64_t log_bytes() const;
  [[nodiscard]] std::string end_reason() const;

  // Waits until the standby waits in ckpt_ready. If the standby exits earlier, the error quotes its last
  // output.
  Task<Result<void>> standby_ready(Milliseconds timeout);
  // Waits until the rank has reported its state, or until the deadline. instance() then reports whether the
  // rank can move.
  Task<> described(std::chrono::steady_clock::time_point deadline);
  // Queries the rank's StateSummary and the process that uses the GPU, and stores both. If a query is already
  // running, the function waits until a later query has finished.
  Task<> refresh_summary();
  // Determines whether the job has no session because our library is not in its processes (job_shim.cc).
  Task<> detect_shim();
  // Checks whether the last query for the rank's state received no answer.
  [[nodiscard]] bool is_silent() const noexcept { return silent_; }
  // Records that the rank runs as `incarnation`.
  void runs_as(wire::Incarnation incarnation);
  // Records the job's GPU, or the location of its context (job_record.h). The record is durable when the
  // function returns.
  Task<Result<void>> moved_to(std::uint32_t gpu_index);
  Task<Result<void>> set_context_location(std::string on, std::string goes_to);
  // Sets the device memory of an adopted process, as the driver reports it.
  void device_bytes_are(std::uint64_t bytes);
  // Sets the expected pauses of a move on this node and of a move to another node (pause_forecast.h). 0 means
  // that the pause is unknown.
  void expect_pauses(Nanos within_node, Nanos between_nodes) {
    expected_pauses_ = {within_node, between_nodes};
  }
  // Sets the last count of obstacles to a move to another node (pause_forecast.h).
  void set_obstacles(std::optional<std::uint32_t> count) { obstacles_ = count; }
  [[nodiscard]] std::uint32_t rank_pid() const noexcept { return rank_pid_; }
  // Returns the process that uses the GPU, as of the last query. The rank's first process may have started
  // it.
  [[nodiscard]] pid_t gpu_process() const noexcept {
    return static_cast<pid_t>(session_pid_ != 0 ? session_pid_ : rank_pid_);
  }
  // Returns the mutex that lets one save or placement of the job's context run at a time.
  [[nodiscard]] AsyncMutex& release_mutex() noexcept { return release_mutex_; }
  // Returns the mutex that is held while the job is resumed from a pause. After a restart, both the job's
  // migration and the search for paused jobs may resume it.
  [[nodiscard]] AsyncMutex& resume_turn() noexcept { return resume_turn_; }
  void set_phase(local::Phase phase);
  // Sends SIGTERM, and SIGKILL after the grace. The context of a restored job is saved before SIGKILL. Such a
  // job gets SIGTERM only if it withstands the signal. For an unknown instance the error is kUnavailable.
  // That instance is stopped if its keeper answers within the grace. Otherwise the keeper is killed.
  Task<Result<void>> stop(Milliseconds grace);
  // Terminates a rank whose job runs elsewhere, then the rank's keeper. Idempotent.
  Task<> leave();
  // Kills the rank and terminates the keeper. Afterwards the instance has ended, unless even the kill cannot
  // be proven. Idempotent.
  Task<> destroy();
  // Waits until the rank has exited, or until the timeout. Returns true if it has exited.
  Task<bool> wait_for_end(Milliseconds timeout);

  // Registers `listener` for the local protocol's events of this instance (RankExited, RankStopped, ...). The
  // listener receives events until it is removed.
  using Listener = std::function<void(const local::Body&)>;
  std::uint64_t listen(Listener listener);
  void unlisten(std::uint64_t id);
  // Wakes `signal` at every change until the signal is removed.
  void add_waiter(AsyncEvent* signal) { waiters_.push_back(signal); }
  void remove_waiter(AsyncEvent* signal) { waiters_.remove(signal); }

 private:
  Job(const JobEnvironment& environment, std::string folder, JobRecord record);
  Result<void> prepare_folder(const HostRestore* restore) const;
  Result<void> launch_keeper();
  // Attaches to the keeper. `restore` is additional time for restoring the instance's process.
  Task<Result<void>> attach_when_ready(Milliseconds restore);
  Result<void> connect();
  Task<Result<void>> attach(std::optional<Milliseconds> timeout = {});
  void on_event(const local::Message& message);
  void on_keeper_gone(const Error& error);
  // Kills a process that was adopted here and still exists, after its keeper has exited. The process is not a
  // child of its keeper.
  void end_adopted() const;
  // Reads the rank's exit from status.json of a keeper that has exited. Returns false if the file records no
  // exit.
  bool accept_written_end();
  // Checks whether the keeper is proven to have exited. If so, the function records the end of the instance.
  bool accept_proven_end(const Error& error);
  void end_without_word(const Error& error);
  // Marks the instance as unknown (job_unknown.cc).
  void become_unknown(const Error& error);
  Task<> ask_until_known();
  Task<Result<void>> ask_once(Milliseconds timeout);
  Task<> stop_unknown(Milliseconds grace);
  Task<> kill_until_proven();
  Task<> sleep_for(Milliseconds time);
  // Records the rank's exit, however it became known, and passes it to the listeners.
  void on_exited(std::int32_t wait_status, bool ended_by_keeper);
  void tell_listeners(const local::Body& event);
  void apply_status(const local::Status& status);
  Task<Result<void>> ask_rank();
  // Records that the instance ran as `incarnation`. Returns false if this was already recorded.
  bool ran_as(wire::Incarnation incarnation);
  Task<> shut_down_keeper();
  // Checks whether a restore has recreated the instance's context (last_save.h).
  [[nodiscard]] bool was_restored() const { return !record_.context_gpu.empty(); }
  Task<> release_gpu();
  Task<> stop_restored(Milliseconds grace);
  void changed();
  Error keeper_error(const std::string& what) const;
  // Writes the record in its current state, in a thread other than the event loop.
  Task<Result<void>> save();
  // Writes the record. An error is only logged.
  Task<> try_save();
  // Starts to write the record, and does not wait for it. If the record is lost, a later agent gets these
  // facts from the keeper.
  void save_soon();

  const JobEnvironment& environment_;
  std::string folder_;
  JobRecord record_;
  JobRecordWriter writer_;
  std::uint64_t saves_ = 0;
  std::shared_ptr<KeeperLink> keeper_;
  std::shared_ptr<ChildProcess> process_;
  std::optional<int> keeper_status_;  // wait status of the program that starts the keeper; no value until
                                      // that program exits
  local::Phase phase_ = local::Phase::kStarting;
  std::uint64_t phases_received_ = 0;  // number of events that have reported a phase
  local::StateSummary summary_;
  std::pair<Nanos, Nanos> expected_pauses_{};
  std::optional<std::uint32_t> obstacles_;
  std::uint32_t rank_pid_ = 0;
  std::uint32_t session_pid_ = 0;  // process with the session; 0 if no process of the job uses a GPU
  std::string without_shim_;       // reason why the job has no session, if its processes have not loaded our
                                   // library
  AsyncMutex release_mutex_;
  AsyncMutex refresh_turn_;
  AsyncMutex resume_turn_;
  bool announced_ = false;  // true after the instance has started; its changes are then reported
  bool leaving_ = false;
  bool ended_on_request_ = false;
  bool unknown_ = false;
  std::string unknown_reason_;
  bool stopping_unknown_ = false;  // true while a stop waits until the instance is known
  bool refreshing_ = false;
  bool silent_ = false;
  bool refresh_again_ = false;  // true if refresh_summary() was called during the query of the keeper
  bool letting_go_ = false;
  std::string last_save_;  // outcome of the last save, which is part of the reason for the instance's end
  std::string end_reason_;
  std::map<std::uint64_t, Listener> listeners_;
  std::uint64_t next_listener_ = 1;
  std::list<AsyncEvent*> waiters_;
};

}  // namespace ckpt::agent
