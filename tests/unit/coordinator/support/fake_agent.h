// SPDX-License-Identifier: Apache-2.0
// An agent that speaks the control messages and does nothing. Jobs "run" at once. A migration's messages are
// answered as real sides answer them when all goes well. Runs on a thread of its own; set it up before
// start().
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
  // With an identity over TLS.
  FakeAgent(std::string node, std::string address, std::string token,
            std::shared_ptr<tls::Identity> identity = nullptr);
  ~FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  void start();
  void stop();

  // Its inventory; change it from the test's thread only before start().
  wire::NodeInventory inventory;
  // The rest of its hello; software_version and inventory are set then. `describes`: on_other
  // answers DescribeJob and DescribeSwitch.
  wire::AgentHello introduction;
  bool refuse_starts = false;
  std::uint8_t refused_program_status = 0;  // not 0: since the program cannot be started
  bool slow_start = false;                  // a started job is kStarting until run_jobs()
  bool refuse_prepare = false;              // as a target
  bool silent_prepare = false;              // never answers Prepare, at either side
  bool pauses = false;  // as a source: it stands at its barrier from the start of the copy until run_jobs()
  unsigned reads_until_freed = 0;  // as a source: its instance ends after so many reads at its log's end
  wire::Reason leaves;             // as a source: why it leaves instead of copying; only in Resumed
  wire::Reason relinquishes;       // as a target: instead of committing
  std::string log = "one\ntwo\n";
  std::atomic<bool> has_lost_logs{false};  // as a node with a new disk
  // The expected pauses that an instance reports from its next change on.
  std::int64_t pause_within_node_ns = 0;
  std::int64_t pause_between_nodes_ns = 0;
  bool ignore_stops = false;  // but for the answer
  bool silent_stops = false;  // they wait for answer_stops()
  std::atomic<unsigned> stops{0};
  bool refuse_moves = false;    // that are only checked
  bool refuse_leaving = false;  // and would go to another node
  // As the target of one.
  bool refuse_arrivals = false;
  bool silent_arrivals = false;
  std::atomic<unsigned> arrivals_asked{0};
  // For what stands in for another part of an agent: after the hello, and frames that this one does not know.
  // On its thread.
  std::function<void()> on_hello;
  std::function<void(const wire::FrameHeader&, std::span<const std::byte>)> on_other;
  // Plays a side of a migration otherwise: true if it has dealt with the message. On its thread.
  std::function<bool(const wire::CommitMessage&)> instead;

  // Ends an instance with that code.
  void end_job(std::uint64_t job, std::int32_t exit_code);
  // All that is starting or paused runs.
  void run_jobs();
  // On its thread.
  void answer_stops();
  // Sends an inventory with it.
  void set_free(std::uint64_t bytes);
  // All instances of the job hold so much as the driver counts.
  void hold(std::uint64_t job, std::uint64_t bytes);
  // As the source of migration 1.
  void set_progress(wire::MigrationProgress progress);
  // On its thread.
  template <class M>
  void send(const M& message) {
    (void)dialer_->send(message);
  }
  void change(std::uint64_t job, std::uint64_t incarnation, wire::JobPhase phase, std::int32_t exit_code = -1,
              std::uint32_t gpu_of_a_new_one = 0);
  // The answer of the side `from` to that message. On its thread.
  void say(const wire::CommitMessage& to_answer, wire::Role from, wire::Role to, wire::Body body);
  void post(std::function<void()> what) { control::asio::post(io_, std::move(what)); }
  void report_health(wire::HealthReport report);
  // Waits until the coordinator's newest settings are so.
  void wait_for_settings(std::uint64_t known_number, bool paused);
  [[nodiscard]] unsigned starts() const { return starts_; }
  // The coordinator has told it, as a source, how a migration ended. Waits; once.
  void wait_for_closed() { closed_.get_future().wait(); }
  // Waits for the first migration whose source this agent is to be, and returns its plan. Once.
  [[nodiscard]] wire::MigrationPlan wait_for_plan() { return plan_.get_future().get(); }

 private:
  Result<void> on_frame(const wire::FrameHeader& header, std::span<const std::byte> body);
  void start_job(const wire::StartJob& message);
  void read_log(const wire::ReadLog& message);
  void on_switch(const wire::CommitMessage& message);
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
