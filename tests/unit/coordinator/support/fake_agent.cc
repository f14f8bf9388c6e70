// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/fake_agent.h"

#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::coordinator::test {
namespace {

using wire::FrameType;

constexpr std::uint64_t kStateBytes = 1 << 20;

}  // namespace

FakeAgent::FakeAgent(std::string node, std::string address, std::string token,
                     std::shared_ptr<tls::Identity> identity) {
  inventory.node = node;
  inventory.peer_address = "127.0.0.1:1";
  wire::GpuInfo& gpu = inventory.gpus.emplace_back();
  gpu.uuid = "GPU-" + node;
  gpu.name = gpu.model = "model-1";
  gpu.total_bytes = gpu.free_bytes = std::uint64_t{8} << 30;
  control::Dialer::Settings settings;
  settings.name = node;
  settings.label = "coordinator";
  settings.address = [address]() -> Result<std::string> { return address; };
  settings.token = [token]() -> Result<std::string> { return token; };
  if (identity) settings.tls = {std::move(identity), control::only(tls::Peer::coordinator())};
  control::Dialer::Handlers handlers;
  handlers.on_connected = [this](control::Connection& connection) {
    wire::AgentHello hello = introduction;
    hello.software_version = "test";
    hello.inventory = inventory;
    (void)connection.send(hello);
    if (on_hello) on_hello();
  };
  handlers.on_frame = [this](const wire::FrameHeader& header, std::span<const std::byte> body) {
    return on_frame(header, body);
  };
  dialer_ = control::Dialer::create(io_.get_executor(), std::move(settings), std::move(handlers));
}

FakeAgent::~FakeAgent() {
  stop();
}

void FakeAgent::start() {
  dialer_->start();
  thread_ = std::thread([this] { io_.run(); });
}

void FakeAgent::stop() {
  if (!thread_.joinable()) return;
  control::asio::post(io_, [this] { dialer_->stop(); });
  thread_.join();
}

void FakeAgent::end_job(std::uint64_t job, std::int32_t exit_code) {
  control::asio::post(io_, [this, job, exit_code] {
    const auto instances = inventory.jobs;
    for (const wire::JobInstance& instance : instances) {
      if (instance.job == job && instance.phase == wire::JobPhase::kRunning)
        change(job, instance.incarnation, wire::JobPhase::kExited, exit_code);
    }
  });
}

void FakeAgent::run_jobs() {
  control::asio::post(io_, [this] {
    const auto instances = inventory.jobs;
    for (const wire::JobInstance& instance : instances) {
      if (instance.phase == wire::JobPhase::kStarting || instance.phase == wire::JobPhase::kPaused)
        change(instance.job, instance.incarnation, wire::JobPhase::kRunning);
    }
  });
}

void FakeAgent::set_free(std::uint64_t bytes) {
  control::asio::post(io_, [this, bytes] {
    inventory.gpus[0].free_bytes = bytes;
    wire::Inventory message;
    message.inventory = inventory;
    (void)dialer_->send(message);
  });
}

void FakeAgent::hold(std::uint64_t job, std::uint64_t bytes) {
  control::asio::post(io_, [this, job, bytes] {
    for (wire::JobInstance& instance : inventory.jobs) {
      if (instance.job == job) instance.ranks[0].device_bytes = bytes;
    }
    wire::Inventory message;
    message.inventory = inventory;
    (void)dialer_->send(message);
  });
}

void FakeAgent::set_progress(wire::MigrationProgress progress) {
  control::asio::post(io_, [this, progress]() mutable {
    progress.migration = 1;
    (void)dialer_->send(progress);
  });
}

void FakeAgent::report_health(wire::HealthReport report) {
  control::asio::post(io_, [this, report] { (void)dialer_->send(report); });
}

void FakeAgent::wait_for_settings(std::uint64_t known_number, bool paused) {
  std::unique_lock lock(settings_mutex_);
  settings_changed_.wait(
      lock, [&] { return settings_.known_number == known_number && settings_.paused == paused; });
}

Result<void> FakeAgent::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body) {
  if (header.type == FrameType::kStartJob) start_job(wire::decode<wire::StartJob>(body).value());
  if (header.type == FrameType::kReadLog) read_log(wire::decode<wire::ReadLog>(body).value());
  if (header.type == FrameType::kCommit) on_handover(wire::decode_commit(body).value());
  if (header.type == FrameType::kHealthSettings) {
    const std::lock_guard lock(settings_mutex_);
    settings_ = wire::decode<wire::HealthSettings>(body).value();
    settings_changed_.notify_all();
  }
  if (header.type == FrameType::kStopJob) stop_job(wire::decode<wire::StopJob>(body).value());
  if (header.type == FrameType::kSetLimits) {
    wire::Reply reply;
    reply.request_id = wire::decode<wire::SetLimits>(body).value().request_id;
    (void)dialer_->send(reply);
  }
  if (header.type == FrameType::kCheckMove) check_move(wire::decode<wire::CheckMove>(body).value());
  if (header.type == FrameType::kCheckTarget) check_target(wire::decode<wire::CheckTarget>(body).value());
  if (on_other) on_other(header, body);
  return ok();
}

void FakeAgent::check_move(const wire::CheckMove& check) {
  wire::Reply reply;
  reply.request_id = check.request_id;
  const bool is_held = open_connections > 0 && check.connections != wire::Connections::kReset;
  const bool refuses = refuse_moves || (check.leaves_node && (refuse_leaving || is_held));
  if (refuses) reply.set_error(Error(ErrorCode::kRefused, "Descriptor 3 is a pipe"));
  if (refuses || !check.requests_needs) return send(reply);
  wire::MoveNeeds needs;
  needs.request_id = check.request_id;
  needs.files = wire::Bytes(3, std::byte{7});
  needs.ended_connections = open_connections;
  send(needs);
}

void FakeAgent::check_target(const wire::CheckTarget& check) {
  ++arrivals_asked;
  if (silent_arrivals) return;
  wire::Reply reply;
  reply.request_id = check.request_id;
  if (refuse_arrivals || check.needs.files.size() != 3)
    reply.set_error(Error(ErrorCode::kRefused, "/root/gpu.log does not exist at the target"));
  send(reply);
}

void FakeAgent::stop_job(const wire::StopJob& message) {
  const auto instances = inventory.jobs;
  for (const wire::JobInstance& instance : instances) {
    const bool over = instance.phase == wire::JobPhase::kExited || instance.phase == wire::JobPhase::kMoved;
    if (instance.job == message.job && instance.incarnation <= message.incarnation && !over && !ignore_stops)
      change(message.job, instance.incarnation, wire::JobPhase::kExited, 143);
  }
  ++stops;
  unanswered_stops_.push_back(message.request_id);
  if (!silent_stops) answer_stops();
}

void FakeAgent::answer_stops() {
  for (const std::uint64_t request : std::exchange(unanswered_stops_, {})) {
    wire::Reply reply;
    reply.request_id = request;
    (void)dialer_->send(reply);
  }
}

void FakeAgent::start_job(const wire::StartJob& message) {
  ++starts_;
  wire::Reply reply;
  reply.request_id = message.request_id;
  if (refuse_starts) {
    reply.ok = false;
    const bool no_program = refused_program_status != 0;
    reply.error_code = static_cast<std::uint8_t>(no_program ? ErrorCode::kRefused : ErrorCode::kNotFound);
    reply.program_status = refused_program_status;
    reply.message = "No such file: " + message.spec.argv.front();
  } else {
    const std::uint32_t gpu = message.spec.ranks.empty() ? 0 : message.spec.ranks.front().gpu_index;
    change(message.spec.job, message.spec.incarnation,
           slow_start ? wire::JobPhase::kStarting : wire::JobPhase::kRunning, -1, gpu);
  }
  (void)dialer_->send(reply);
}

void FakeAgent::read_log(const wire::ReadLog& message) {
  if (has_lost_logs) {
    wire::Reply reply;
    reply.request_id = message.request_id;
    reply.set_error(Error(ErrorCode::kNotFound, "There is no such instance"));
    return send(reply);
  }
  wire::LogData data;
  data.request_id = message.request_id;
  data.offset = message.offset;
  data.bytes = message.offset < log.size() ? log.substr(message.offset, message.limit) : "";
  for (const wire::JobInstance& instance : inventory.jobs) {
    if (instance.job == message.job && instance.incarnation == message.incarnation)
      data.ended = instance.phase == wire::JobPhase::kExited || instance.phase == wire::JobPhase::kMoved;
  }
  data.ended = data.ended && message.offset + data.bytes.size() >= log.size();
  (void)dialer_->send(data);
  if (data.bytes.empty() && reads_until_freed != 0 && --reads_until_freed == 0)
    change(message.job, message.incarnation, wire::JobPhase::kMoved);
}

void FakeAgent::change(std::uint64_t job, std::uint64_t incarnation, wire::JobPhase phase,
                       std::int32_t exit_code, std::uint32_t gpu_of_a_new_one) {
  wire::JobInstance* found = nullptr;
  for (wire::JobInstance& instance : inventory.jobs) {
    if (instance.job == job && instance.incarnation == incarnation) found = &instance;
  }
  if (found == nullptr) {
    found = &inventory.jobs.emplace_back();
    found->job = job;
    found->incarnation = incarnation;
    found->movable = true;
    wire::RankState& rank = found->ranks.emplace_back();
    rank.pid = 4711;
    rank.gpu_index = gpu_of_a_new_one;
    rank.state_bytes = kStateBytes;
  }
  found->phase = phase;
  found->exit_code = exit_code;
  found->log_bytes = log.size();
  found->pause_within_node_ns = pause_within_node_ns;
  found->pause_between_nodes_ns = pause_between_nodes_ns;
  wire::JobChange message;
  message.instance = *found;
  (void)dialer_->send(message);
}

void FakeAgent::send_commit(const wire::CommitMessage& m, wire::Role from, wire::Role to, wire::Body body) {
  const wire::CommitMessage answer(m.migration, m.job, m.base, from, to, std::move(body));
  (void)dialer_->send(answer);
}

void FakeAgent::on_handover(const wire::CommitMessage& message) {
  if (message.kind == wire::CommitKind::kGang) {
    if (on_gang) on_gang(message);
    return;
  }
  if (instead && instead(message)) return;
  if (message.to.role == wire::Role::kSource) as_source(message);
  if (message.to.role == wire::Role::kTarget) as_target(message);
}

void FakeAgent::as_source(const wire::CommitMessage& m) {
  const auto answer = [&](wire::Body body) {
    send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, std::move(body));
  };
  const auto* prepare = std::get_if<wire::Prepare>(&m.body);
  if (prepare != nullptr && !has_plan_) {
    has_plan_ = true;
    plan_.set_value(wire::decode_plan(prepare->plan).value());
  }
  if (prepare != nullptr && !silent_prepare) answer(wire::Prepared());
  if (std::holds_alternative<wire::Start>(m.body) && !leaves.text.empty())
    return answer(wire::Resumed(m.base, true, true, leaves));
  if (std::holds_alternative<wire::Start>(m.body)) {
    if (pauses) change(m.job, m.base, wire::JobPhase::kPaused);
    answer(wire::Precopied());
  }
  if (std::holds_alternative<wire::Aborted>(m.body)) answer(wire::Resumed(m.base, true, true));
  if (std::holds_alternative<wire::GiveUp>(m.body) && !pauses) answer(wire::Resumed(m.base, true, true));
  const auto* closed = std::get_if<wire::Closed>(&m.body);
  if (closed != nullptr && closed->side == wire::Side::kSource && !is_closed_) {
    is_closed_ = true;
    answer(wire::Resumed(m.base, true, false));
    closed_.set_value();
  }
  if (closed != nullptr && closed->side == wire::Side::kTarget) answer(wire::Released());
  if (std::holds_alternative<wire::Ran>(m.body)) {
    if (reads_until_freed == 0) change(m.job, m.base, wire::JobPhase::kMoved);
    wire::SourceReport report;
    report.migration = m.migration;
    report.barrier_entered_ns = 1'000'000'000;
    report.paused_ns = 1'001'000'000;
    report.last_ack_ns = 1'003'000'000;
    report.rounds = 2;
    report.state_bytes = kStateBytes;
    report.sent_bytes = 3'000'000;
    report.wire_bytes = 2'000'000;
    report.host_bytes = 4000;
    report.context_bytes = 5000;
    report.resent_chunks = 3;
    report.dirty_bytes = kStateBytes / 2;
    report.final_bytes = kStateBytes / 4;
    report.link_bytes_per_second = 1 << 30;
    report.scan_bytes_per_second = std::uint64_t{1} << 32;
    (void)dialer_->send(report);
    answer(wire::Released());
  }
}

void FakeAgent::as_target(const wire::CommitMessage& m) {
  const auto answer = [&](wire::Body body) {
    send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, std::move(body));
  };
  if (std::holds_alternative<wire::Prepare>(m.body) && !silent_prepare) {
    if (refuse_prepare)
      return answer(wire::Refused(wire::Reason(ErrorCode::kRefused, "tensor w1: shapes differ")));
    change(m.job, m.base + 1, wire::JobPhase::kStandby);
    answer(wire::Prepared());
  }
  if (const auto* commit = std::get_if<wire::Commit>(&m.body);
      commit != nullptr && !relinquishes.text.empty())
    answer(wire::Relinquished(relinquishes));
  else if (commit != nullptr)
    answer(wire::LeaseRequest(commit->k, now_ns()));
  if (const auto* lease = std::get_if<wire::Lease>(&m.body)) {
    answer(wire::Verified());
    answer(wire::Committed(lease->k));
    change(m.job, m.base + 1, wire::JobPhase::kRunning);
    wire::TargetReport report;
    report.migration = m.migration;
    report.verified = true;
    report.verified_ns = 1'004'000'000;
    report.committed_ns = 1'006'000'000;
    report.resume_sent_ns = 1'007'000'000;
    report.resumed_ns = 1'008'000'000;
    report.remarks = remarks;
    (void)dialer_->send(report);
    answer(wire::Ran(lease->k));
  }
  if (std::holds_alternative<wire::Closed>(m.body)) answer(wire::Committed(m.base + 1));
  if (std::holds_alternative<wire::Aborted>(m.body)) answer(wire::Relinquished());
}

}  // namespace ckpt::coordinator::test
