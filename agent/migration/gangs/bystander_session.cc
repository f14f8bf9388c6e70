// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/gangs/bystander_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/migration/instance_end.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr Milliseconds kFirstBackoff{100};
constexpr Milliseconds kMaxBackoff{5000};

Error has_ended() {
  return {ErrorCode::kAborted, "The rank's process has exited"};
}

}  // namespace

Result<local::JoinGroups> to_order(const std::vector<gang::GroupTicket>& tickets, std::uint64_t epoch) {
  local::JoinGroups order;
  order.sequence = epoch;
  for (const gang::GroupTicket& ticket : tickets) {
    local::GroupRecord& record = order.records.emplace_back();
    if (ticket.ticket.size() > record.ticket.size() || ticket.group.size() >= local::kNameBytes)
      return Error(ErrorCode::kInvalidArgument, "The ticket of group " + ticket.group + " is too long");
    record.name.assign(ticket.group);
    record.bytes = static_cast<std::uint32_t>(ticket.ticket.size());
    std::copy(ticket.ticket.begin(), ticket.ticket.end(), record.ticket.begin());
  }
  return order;
}

BystanderSession::BystanderSession(MigrationContext& context, gang::StayingRank rank, std::uint64_t epoch,
                                   Emit emit, Measured measured)
    : context_(context),
      rank_(std::move(rank)),
      epoch_(epoch),
      emit_(std::move(emit)),
      measured_(std::move(measured)) {
  attach();
}

BystanderSession::~BystanderSession() {
  if (job_) job_->unlisten(listener_);
}

void BystanderSession::attach() {
  if (job_) return;
  job_ = context_.jobs.running_as(rank_.job, rank_.incarnation);
  if (!job_) return;
  listener_ = job_->listen([this](const local::Body& body) {
    const auto* exited = std::get_if<local::RankExited>(&body);
    if (exited == nullptr) return;
    // A rank that has continued needs nothing more from the move.
    if (orders_ > 0 && is_clean_end(*exited)) return;
    emit_(gang::InstanceDied(wire::Reason(has_ended())));
  });
}

void BystanderSession::admit() {
  control::spawn(context_.executor, "rank that does not move", admit_rank());
}

Task<> BystanderSession::admit_rank() {
  auto self = shared_from_this();
  auto admitted = co_await be_admitted();
  if (!admitted) co_return emit_(gang::CommunicatorsFailed(wire::Reason(admitted.error())));
  emit_(gang::RankReady{});
}

Task<Result<void>> BystanderSession::be_admitted() {
  attach();
  if (!std::exchange(is_admitted_, true)) co_await context_.holders.acquire_exclusive(rank_.job);
  if (!job_ || job_->ended() || !job_->keeper()) co_return has_ended();
  co_return ok();
}

void BystanderSession::join(std::vector<gang::GroupTicket> tickets, Milliseconds timeout) {
  control::spawn(context_.executor, "new communicators", join_groups(std::move(tickets), timeout));
}

Task<> BystanderSession::join_groups(std::vector<gang::GroupTicket> tickets, Milliseconds timeout) {
  auto self = shared_from_this();
  auto admitted = co_await be_admitted();
  if (!admitted) co_return emit_(gang::CommunicatorsFailed(wire::Reason(admitted.error())));
  if (!tickets.empty()) {
    const auto keeper = job_->keeper();
    auto order = to_order(tickets, epoch_);
    if (!order) co_return emit_(gang::CommunicatorsFailed(wire::Reason(order.error())));
    const Nanos begin = now_ns();
    auto joined = co_await keeper->join_groups(*std::move(order), timeout);
    groups_took_ = now_ns() - begin;
    if (!joined) {
      const Error reason =
          Error(ErrorCode::kAborted, "Rank " + std::to_string(rank_.rank) + " did not get new communicators")
              .caused_by(std::move(joined).error());
      co_return emit_(gang::CommunicatorsFailed(wire::Reason(reason)));
    }
  }
  emit_(gang::CommunicatorsReady{});
}

void BystanderSession::discard() {
  const auto keeper = job_ ? job_->keeper() : nullptr;
  if (keeper) keeper->discard_groups(epoch_);
}

void BystanderSession::pause_at(std::uint64_t barrier) {
  control::spawn(context_.executor, "rank pause", pause(barrier));
}

Task<> BystanderSession::pause(std::uint64_t barrier) {
  auto self = shared_from_this();
  const auto keeper = job_ ? job_->keeper() : nullptr;
  if (!keeper) co_return;
  pausing_ = keeper->begin_pause(barrier);
  auto state = co_await keeper->finish_pause(*pausing_);
  pausing_.reset();
  if (!state) {
    if (state.error().code() != ErrorCode::kAborted)
      emit_(gang::CommunicatorsFailed(wire::Reason(state.error())));
    co_return;
  }
  stood_since_ = state->paused.barrier_entry_ns;
  job_->set_phase(local::Phase::kPaused);
  emit_(gang::RankHeld{});
}

void BystanderSession::go_on(bool with_new) {
  attach();
  if (pausing_) pausing_->cancel();
  control::spawn(context_.executor, "rank resumes", resume(++orders_, with_new ? epoch_ : 0));
}

Task<> BystanderSession::resume(std::uint64_t order, std::uint64_t epoch) {
  auto self = shared_from_this();
  if (!job_) co_return;
  co_await job_->known();
  const AsyncMutex::Held turn = co_await job_->resume_turn().acquire();
  for (Milliseconds pause = kFirstBackoff; order == orders_; pause = std::min(pause * 2, kMaxBackoff)) {
    co_await job_->known();  // the keeper may have been lost with the previous order
    const auto keeper = job_->keeper();
    if (order != orders_ || job_->ended() || !keeper) co_return;
    local::Resume resume;
    resume.incarnation = rank_.incarnation;
    resume.epoch = epoch;
    auto running = co_await keeper->resume(resume, UniqueFd{});
    if (running) {
      job_->runs_as(rank_.incarnation);
      const Nanos since = std::exchange(stood_since_, 0);
      if (epoch != 0 && since != 0) measured_(since, running->resumed_ns, groups_took_);
      co_return;
    }
    spdlog::error("rank not resumed yet: job {} reason {}", wire::job_text(rank_.job),
                  running.error().to_string());
    AsyncEvent nobody(context_.executor);
    co_await nobody.wait(std::chrono::steady_clock::now() + pause);
  }
}

void BystanderSession::end() {
  attach();
  ++orders_;
  if (!std::exchange(is_ending_, true)) control::spawn(context_.executor, "rank ends", end_rank());
}

Task<> BystanderSession::end_rank() {
  auto self = shared_from_this();
  co_await end_for_certain(job_);
  is_ending_ = false;
  emit_(gang::RankEnded{});
}

}  // namespace ckpt::agent
