// SPDX-License-Identifier: Apache-2.0
// An agent that speaks the control messages and does nothing. Jobs "run" at once. It answers a migration's
// messages as real sides do when all goes well. It runs on a thread of its own; set it up before start().
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/net/control/dialer.h"
#include "libckpt/protocol/wire/health_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator::test {

class FakeAgent {
 public:
  // Creates an agent. `identity` is the identity for TLS; null: no TLS.
  FakeAgent(std::string node, std::string address, std::string token,
            std::shared_ptr<tls::Identity> identity = nullptr);
  ~FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  void start();
  void stop();

  // The agent's inventory. Change it from the test's thread only before start().
  wire::NodeInventory inventory;
  // The other fields of the agent's hello; software_version and inventory are set later. With
  // introduction.describes, on_other answers DescribeJob and DescribeHandover.
  wire::AgentHello introduction;
  bool refuse_starts = false;
  std::uint8_t refused_program_status = 0;  // if not 0, starts are refused with this status because the
                                            // program cannot be started
  bool slow_start = false;                  // true if a started job stays kStarting until run_jobs()
  bool refuse_prepare = false;              // true if this agent refuses Prepare as a target
  bool silent_prepare = false;              // true if this agent never answers Prepare, neither as the source
                                            // nor as the target
  bool pauses = false;  // true if this agent, as a source, waits at its barrier from the start of the copy
                        // until run_jobs()
  unsigned reads_until_freed = 0;  // for a source: the instance exits after this many reads at the end of its
                                   // log
  wire::Reason leaves;             // for a source: if not empty, this agent sends Resumed with this reason
                                   // instead of copying
  wire::Reason relinquishes;  // for a target: if not empty, this agent sends Relinquished with this reason
                              // instead of committing
  std::string log = "one\ntwo\n";
  std::atomic<bool> has_lost_logs{false};  // true if the logs are lost, as on a node with a new disk
  // The expected pauses, in nanoseconds, that an instance reports with its next change and all later changes.
  std::int64_t pause_within_node_ns = 0;
  std::int64_t pause_between_nodes_ns = 0;
  // Remarks in this agent's reports as the target of a move.
  std::vector<std::string> remarks;
  bool ignore_stops = false;  // true if this agent answers stops without stopping an instance
  bool silent_stops = false;  // true if this agent answers stops only in answer_stops()
  std::atomic<unsigned> stops{0};
  std::uint64_t open_connections = 0;  // connections to other programs; without the option reset, this number
                                       // refuses a move
  bool refuse_moves = false;           // true if this agent refuses every CheckMove
  bool refuse_leaving = false;         // true if this agent refuses a CheckMove to another node
  // Whether this agent, as the target of a move, refuses the check of the move, or does not answer the check.
  bool refuse_arrivals = false;
  bool silent_arrivals = false;
  std::atomic<unsigned> arrivals_asked{0};
  // Handlers that stand in for other parts of an agent: one after the hello, and one for frames that this
  // agent does not know. They run on the agent's thread.
  std::function<void()> on_hello;
  std::function<void(const wire::FrameHeader&, std::span<const std::byte>)> on_other;
  // A handler that replaces this agent's answers for one side of a migration. It returns true if it has
  // handled the message. It runs on the agent's thread.
  std::function<bool(const wire::CommitMessage&)> instead;
  // A handler for the messages of moves of ranks, which this agent does not answer. It runs on the agent's
  // thread.
  std::function<void(const wire::CommitMessage&)> on_gang;

  // Ends an instance with that exit code.
  void end_job(std::uint64_t job, std::int32_t exit_code);
  // Makes all starting or paused instances run.
  void run_jobs();
  // Answers the waiting stops. Call this on the agent's thread.
  void answer_stops();
  // Sets the free memory and sends an inventory.
  void set_free(std::uint64_t bytes);
  // Sets the driver's count of bytes for all instances of the job.
  void hold(std::uint64_t job, std::uint64_t bytes);
  // Sets the progress of migration 1, as its source.
  void set_progress(wire::MigrationProgress progress);
  // Sends a message. Call this on the agent's thread.
  template <class M>
  void send(const M& message) {
    (void)dialer_->send(message);
  }
  void change(std::uint64_t job, std::uint64_t incarnation, wire::JobPhase phase, std::int32_t exit_code = -1,
              std::uint32_t gpu_of_a_new_one = 0);
  // Sends the answer of the side `from` to that message. Call this on the agent's thread.
  void send_commit(const wire::CommitMessage& to_answer, wire::Role from, wire::Role to, wire::Body body);
  void post(std::function<void()> what) { control::asio::post(io_, std::move(what)); }
  void report_health(wire::HealthReport report);
  // Waits until the coordinator's newest settings have these values.
  void wait_for_settings(std::uint64_t known_number, bool paused);
  [[nodiscard]] unsigned starts() const { return starts_; }
  // Waits until the coordinator has informed this agent, as a source, how a migration ended. Call this once.
  void wait_for_closed() { closed_.get_future().wait(); }
  // Waits for the first migration with this agent as the source, and returns its plan. Call this once.
  [[nodiscard]] wire::MigrationPlan wait_for_plan() { return plan_.get_future().get(); }

 private:
  Result<void> on_frame(const wire::FrameHeader& header, std::span<const std::byte> body);
  void start_job(const wire::StartJob& message);
  void read_log(const wire::ReadLog& message);
  void on_handover(const wire::CommitMessage& message);
  void as_source(const wire::CommitMessage& message);
  void as_target(const wire::CommitMessage& message);
  void stop_job(const wire::StopJob& message);
  void check_move(const wire::CheckMove& check);
  void check_target(const wire::CheckTarget& check);

  control::asio::io_context io_{1};
  std::shared_ptr<control::Dialer> dialer_;
  std::thread thread_;
  std::atomic<unsigned> starts_{0};
  bool has_plan_ = false;
  std::promise<wire::MigrationPlan> plan_;
  bool is_closed_ = false;
  std::promise<void> closed_;
  std::vector<std::uint64_t> unanswered_stops_;
  std::mutex settings_mutex_;
  std::condition_variable settings_changed_;
  wire::HealthSettings settings_;
};

}  // namespace ckpt::coordinator::test
