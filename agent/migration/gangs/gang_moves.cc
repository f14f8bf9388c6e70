// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/gangs/gang_moves.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/migration/instance_end.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

using gang::Party;
using gang::PartyKey;
using gang::Role;

constexpr std::uint32_t kTicketsMs = 30'000;
constexpr std::size_t kKeptMembers = 64;

// Returns the action if the machines of one rank also have it. Returns nothing for any other action.
std::optional<migration::Action> to_session(const gang::Action& action) {
  return std::visit(
      [](const auto& what) -> std::optional<migration::Action> {
        if constexpr (std::is_constructible_v<migration::Action, decltype(what)>)
          return migration::Action(what);
        else
          return std::nullopt;
      },
      action);
}

gang::Reason reason_of(const Error& error) {
  return gang::Reason(error);
}

// A rank that a session holds. A failure becomes the event `Failure` of the session's machine.
template <class Session, class Event, class Failure>
class HeldBySession : public HeldRank {
 public:
  HeldBySession(std::shared_ptr<Session> session, GangDriver& driver, const PartyKey& key)
      : session_(std::move(session)), driver_(driver), key_(key) {}
  [[nodiscard]] std::shared_ptr<Job> job() const override { return session_->job(); }
  void pause_at(std::uint64_t barrier) override { session_->pause_at(barrier); }
  void failed(const Error& error) override { driver_.on_event(key_, Event(Failure(reason_of(error)))); }

 private:
  std::shared_ptr<Session> session_;
  GangDriver& driver_;
  PartyKey key_;
};
using HeldSource = HeldBySession<SourceSession, gang::SourceEvent, gang::EngineFailed>;
using HeldBystander = HeldBySession<BystanderSession, gang::BystanderEvent, gang::CommunicatorsFailed>;

}  // namespace

GangMoves::GangMoves(MigrationContext& context, GangPort& link, PeerLinks& peers,
                     GangDriver::Machines machines)
    : context_(context),
      link_(link),
      peers_(peers),
      hold_timeout_(machines.timing.pause_timeout_ms),
      driver_(std::move(machines), *this) {}

// ---- members ----

GangMoves::Member* GangMoves::find(const PartyKey& key) {
  const auto at = members_.find(key);
  return at == members_.end() ? nullptr : &at->second;
}

const GangMoves::Member* GangMoves::find(const PartyKey& key) const {
  const auto at = members_.find(key);
  return at == members_.end() ? nullptr : &at->second;
}

GangMoves::Member* GangMoves::member(const PartyKey& key, const gang::GangInfo& info) {
  if (Member* known = find(key)) return known;
  auto made = make(key, info);
  if (!made) {
    spdlog::error("invalid plan of a move of ranks: id {} reason {}", wire::migration_text(key.migration),
                  made.error().to_string());
    return nullptr;
  }
  Member& added = members_.emplace(key, *std::move(made)).first->second;
  add_sessions(key, added);
  if (const gang::PartyState* state = driver_.parties().find(key);
      state != nullptr && !gang::is_closed(*state))
    add_peers(key, *added.plan);
  return &added;
}

Result<GangMoves::Member> GangMoves::make(const PartyKey& key, const gang::GangInfo& info) {
  auto& plan = plans_[key.migration];
  if (!plan) {
    CKPT_TRY(decoded, gang::decode_gang_plan(info.plan));
    plan = std::make_shared<const gang::GangPlan>(std::move(decoded));
  }
  Member made;
  made.plan = plan;
  made.epoch = plan->epoch;
  made.overlaps = info.overlaps;
  made.gang_base = info.base;
  made.gang = info.gang;
  made.rank = key.party.rank;
  if (key.party.role == Role::kBystander) {
    const gang::StayingRank* staying = gang::find_staying(*plan, key.party.rank);
    if (staying == nullptr) return Error(ErrorCode::kProtocol, "The plan does not name the rank");
    made.job = staying->job;
    return made;
  }
  const gang::MovedRank* moved = gang::find_moved(*plan, key.party.rank);
  if (moved == nullptr) return Error(ErrorCode::kProtocol, "The plan does not name the rank");
  CKPT_TRY(own, wire::decode_plan(moved->plan));
  made.job = own.spec.job;
  made.info = migration::HandoverInfo(moved->migration, made.job, moved->base, {}, moved->plan);
  return made;
}

void GangMoves::add_sessions(const PartyKey& key, Member& member) {
  std::shared_ptr<HeldRank> held;
  if (key.party.role == Role::kTarget) {
    member.target = std::make_shared<TargetSession>(context_, *this, member.info);
    return;
  }
  if (key.party.role == Role::kSource) {
    member.source = std::make_shared<SourceSession>(context_, *this, member.info);
    held = std::make_shared<HeldSource>(member.source, driver_, key);
  } else {
    member.bystander = std::make_shared<BystanderSession>(
        context_, *gang::find_staying(*member.plan, member.rank), member.epoch,
        [this, key](gang::BystanderEvent event) {
          if (std::holds_alternative<gang::RankHeld>(event)) {
            if (Member* known = find(key)) known->stop->is_held();
          }
          emit(key, std::move(event));
        },
        [this, key, gang = member.gang, base = member.gang_base](Nanos stood_since, Nanos went_on,
                                                                 Nanos groups) {
          wire::CommitMessage message(key.migration, gang, base, key.party, Party(), gang::Query{});
          message.times.emplace();
          message.times->pause_ns = went_on - stood_since;
          message.times->groups_ns = groups;
          const Member* known = find(key);
          const Nanos told = known == nullptr ? 0 : known->stop->stop_requested_at();
          if (told != 0) message.times->to_barrier_ns = std::max<Nanos>(0, stood_since - told);
          link_.send(message);
        });
    held = std::make_shared<HeldBystander>(member.bystander, driver_, key);
  }
  member.stop = std::make_shared<RankStop>(context_.executor, std::move(held));
  // After a restart of the agent, the rank may already be at the common barrier.
  const gang::PartyState* state = driver_.parties().find(key);
  const bool stands =
      state != nullptr && (gang::phase_name(*state) == "BARRIER" || gang::phase_name(*state) == "HELD" ||
                           gang::phase_name(*state) == "HELD_STILL");
  if (stands) member.stop->is_held();
}

wire::Incarnation GangMoves::own(const Member& member, wire::Incarnation k) const {
  return member.info.base + (k - member.gang_base);
}

wire::Incarnation GangMoves::last_incarnation(const Member& member, Role role) const {
  if (role == Role::kBystander) {
    const gang::StayingRank* staying = gang::find_staying(*member.plan, member.rank);
    return staying == nullptr ? 0 : staying->incarnation;
  }
  return role == Role::kTarget ? member.info.base + 1 : member.info.base;
}

// ---- actions ----

void GangMoves::perform(const PartyKey& key, const gang::GangInfo& info, const gang::Action& action) {
  Member* known = member(key, info);
  if (known == nullptr) return;
  if (std::holds_alternative<gang::PrepareSource>(action)) fault_point(FaultPoint::kSourcePreparing);
  if (std::holds_alternative<gang::PrepareStandby>(action)) fault_point(FaultPoint::kTargetPreparing);
  switch (key.party.role) {
    case Role::kSource:
      return perform_source(key, *known, action);
    case Role::kTarget:
      return perform_target(key, *known, action);
    case Role::kBystander:
      return perform_bystander(*known, action);
    case Role::kCoordinator:
      return;
  }
}

void GangMoves::perform_source(const PartyKey& key, Member& member, const gang::Action& action) {
  if (std::holds_alternative<gang::HoldRank>(action)) return member.stop->want();
  if (const auto* go_on = std::get_if<gang::ResumeRank>(&action)) {
    member.stop->end();
    return member.source->perform(migration::RunInstance(own(member, go_on->k), std::nullopt));
  }
  if (std::holds_alternative<gang::EndRank>(action)) {
    member.stop->end();
    if (!std::exchange(member.ending, true))
      control::spawn(context_.executor, "rank ends", end_source(key, instance_of(member)));
    return;
  }
  if (std::holds_alternative<gang::StopCopy>(action) || std::holds_alternative<gang::FreeSource>(action))
    member.stop->end();
  if (const auto order = to_session(action)) member.source->perform(*order);
}

void GangMoves::perform_target(const PartyKey& key, Member& member, const gang::Action& action) {
  if (const auto* enter = std::get_if<gang::EnterGate>(&action)) {
    control::spawn(context_.executor, "rank enters its gate", enter_gate(key, member.target, enter->k));
  } else if (std::holds_alternative<gang::PrepareCommunicators>(action)) {
    control::spawn(context_.executor, "communicators of a standby", join_in_pause(key, member.target));
  } else if (const auto* open = std::get_if<gang::OpenGate>(&action)) {
    control::spawn(context_.executor, "rank passes its gate", open_gate(key, member.target, *open));
  } else if (std::holds_alternative<gang::FreeTarget>(action)) {
    if (!std::exchange(member.ending, true))
      control::spawn(context_.executor, "target ends", end_target(key, member.target));
  } else if (const auto order = to_session(action)) {
    member.target->perform(*order);
  }
}

void GangMoves::perform_bystander(Member& member, const gang::Action& action) {
  BystanderSession& session = *member.bystander;
  if (std::holds_alternative<gang::PrepareRank>(action)) {
    session.admit();
  } else if (std::holds_alternative<gang::PrepareCommunicators>(action)) {
    session.join(member.plan->tickets, Milliseconds(member.plan->groups_timeout_ms));
  } else if (std::holds_alternative<gang::DiscardCommunicators>(action)) {
    session.discard();
  } else if (std::holds_alternative<gang::HoldRank>(action)) {
    member.stop->want();
  } else if (std::holds_alternative<gang::SwapEpoch>(action)) {
    member.stop->end();
    session.go_on(true);
  } else if (std::holds_alternative<gang::ResumeRank>(action)) {
    member.stop->end();
    session.go_on(false);
  } else if (std::holds_alternative<gang::EndRank>(action)) {
    member.stop->end();
    session.end();
  }
}

// Returns the source's instance. After a return and a restart of the agent, only the later incarnation
// identifies the instance. An instance that was started as that incarnation came from an image afterwards.
std::shared_ptr<Job> GangMoves::instance_of(const Member& member) const {
  if (auto job = member.source->job()) return job;
  if (auto job = context_.jobs.running_as(member.job, member.info.base)) return job;
  auto returned = context_.jobs.running_as(member.job, member.info.base + 2);
  return returned && returned->started_as() <= member.info.base ? returned : nullptr;
}

Task<> GangMoves::end_source(PartyKey key, std::shared_ptr<Job> job) {
  co_await end_for_certain(std::move(job));
  if (Member* known = find(key)) known->ending = false;
  emit(key, gang::SourceEvent(gang::RankEnded{}));
}

Task<> GangMoves::end_target(PartyKey key, std::shared_ptr<TargetSession> session) {
  co_await session->free();
  const std::shared_ptr<Job> job = session->job();
  co_await end_for_certain(job);
  if (Member* known = find(key)) known->ending = false;
  emit(key, gang::TargetEvent(gang::RankEnded{}));
}

// Creates the communicators. `beside` is additional time until the other ranks take part.
Task<Result<void>> GangMoves::make_communicators(PartyKey key, std::shared_ptr<TargetSession> session,
                                                 Milliseconds beside) {
  const Member* known = find(key);
  if (known == nullptr) co_return Error(ErrorCode::kAborted, "The move has already ended");
  const Milliseconds timeout = Milliseconds(known->plan->groups_timeout_ms) + beside;
  auto order = to_order(known->plan->tickets, known->epoch);
  const auto keeper = session->job() ? session->job()->keeper() : nullptr;
  Result<void> joined = ok();
  if (!order) {
    joined = std::move(order).error();
  } else if (!keeper) {
    joined = Error(ErrorCode::kUnavailable, "The standby has exited");
  } else if (!order->records.empty()) {
    auto answer = co_await keeper->join_groups(*std::move(order), timeout);
    joined = std::move(answer);
  }
  if (joined) co_return ok();
  co_return Error(ErrorCode::kAborted,
                  "The standby of rank " + std::to_string(key.party.rank) + " did not get new communicators")
      .caused_by(std::move(joined).error());
}

// Creates the communicators of a standby. Nothing is copied before that, so a move that cannot be completed
// then has no cost.
Task<> GangMoves::join_standby(PartyKey key, std::shared_ptr<TargetSession> session, wire::Bytes payload) {
  const Nanos begin = now_ns();
  auto made = co_await make_communicators(key, std::move(session), Milliseconds(0));
  if (Member* known = find(key); known != nullptr && !known->plan->tickets.empty())
    known->groups_took = now_ns() - begin;
  if (made)
    emit(key, gang::TargetEvent(gang::StandbyReady(std::move(payload))));
  else
    emit(key, gang::TargetEvent(gang::StandbyRefused(reason_of(made.error()))));
}

// Creates the communicators in the pause. The standby waits for the ranks that stay, which take part after
// they are held.
Task<> GangMoves::join_in_pause(PartyKey key, std::shared_ptr<TargetSession> session) {
  auto made = co_await make_communicators(key, session, hold_timeout_);
  if (!made) co_return emit(key, gang::TargetEvent(gang::CommunicatorsFailed(reason_of(made.error()))));
  session->communicators_are_made(now_ns());
  emit(key, gang::TargetEvent(gang::CommunicatorsReady{}));
}

Task<> GangMoves::enter_gate(PartyKey key, std::shared_ptr<TargetSession> session, wire::Incarnation k) {
  const Member* known = find(key);
  if (known == nullptr) co_return;
  auto entered = co_await session->enter_gate(own(*known, k), known->epoch);
  if (entered) {
    fault_point(FaultPoint::kTargetInGate);
    co_return emit(key, gang::TargetEvent(gang::RankInGate(k)));
  }
  spdlog::error("rank could not enter its gate: id {} rank {} reason {}", wire::migration_text(key.migration),
                key.party.rank, entered.error().to_string());
  if (entered.error().code() == ErrorCode::kAborted)
    emit(key, gang::TargetEvent(gang::InstanceDied(reason_of(entered.error()))));
}

Task<> GangMoves::open_gate(PartyKey key, std::shared_ptr<TargetSession> session, gang::OpenGate order) {
  const Member* known = find(key);
  if (known == nullptr) co_return;
  auto opened =
      co_await session->open_gate(own(*known, order.k), order.deadline.value_or(local::kNoDeadline));
  if (opened) co_return emit(key, gang::TargetEvent(gang::InstanceRuns(order.k)));
  spdlog::error("rank could not pass its gate: id {} rank {} reason {}", wire::migration_text(key.migration),
                key.party.rank, opened.error().to_string());
}

// ---- events of sessions ----

void GangMoves::on_event(migration::HandoverKey key, migration::SourceEvent event) {
  for (auto& [of, known] : members_) {
    if (!known.source || known.info.migration != key.migration) continue;
    if (std::holds_alternative<migration::JobPaused>(event)) {
      known.stop->is_held();
      emit(of, gang::SourceEvent(gang::RankHeld{}));
      return;
    }
    std::visit(
        [&](auto& what) {
          if constexpr (std::is_constructible_v<gang::SourceEvent, std::decay_t<decltype(what)>>)
            emit(of, gang::SourceEvent(std::move(what)));
        },
        event);
    return;
  }
}

void GangMoves::on_event(migration::HandoverKey key, migration::TargetEvent event) {
  for (auto& [of, known] : members_) {
    if (!known.target || known.info.migration != key.migration) continue;
    if (auto* ready = std::get_if<migration::StandbyReady>(&event); ready != nullptr && known.overlaps) {
      control::spawn(context_.executor, "communicators of a standby",
                     join_standby(of, known.target, std::move(ready->payload)));
      return;
    }
    // open_gate() reports this event instead
    if (std::holds_alternative<migration::InstanceRuns>(event)) return;
    if (std::holds_alternative<migration::InstanceStopped>(event)) {
      emit(of, gang::TargetEvent(gang::InstanceStopped(known.gang_base + 1)));
      return;
    }
    if (std::holds_alternative<migration::InstanceFinished>(event)) {
      emit(of, gang::TargetEvent(gang::InstanceFinished(known.gang_base + 1)));
      return;
    }
    std::visit(
        [&](auto& what) {
          if constexpr (std::is_constructible_v<gang::TargetEvent, std::decay_t<decltype(what)>>)
            emit(of, gang::TargetEvent(std::move(what)));
        },
        event);
    return;
  }
}

// ---- orders to ranks ----

Task<> GangMoves::gather(wire::GatherRank order) {
  const std::uint64_t id = order.request_id;
  std::shared_ptr<RankStop> stop;
  for (const auto& [key, known] : members_)
    if (key.migration == order.migration && known.job == order.job && known.stop) stop = known.stop;
  if (!stop)
    co_return link_.reply(
        id, Error(ErrorCode::kNotFound,
                  "Rank " + wire::job_text(order.job) + " does not take part in that move on this node"));
  auto gathered = co_await stop->gather(std::move(order));
  if (!gathered) co_return link_.reply(id, std::move(gathered).error());
  wire::RankGathered answer = *std::move(gathered);
  answer.request_id = id;
  link_.send(answer);
}

Task<> GangMoves::answer_groups(gang::AskGroups request) {
  auto groups = co_await groups_of(request);
  if (!groups) co_return link_.reply(request.request_id, std::move(groups).error());
  gang::RankGroups answer = *std::move(groups);
  answer.request_id = request.request_id;
  link_.send(answer);
}

Task<Result<gang::RankGroups>> GangMoves::groups_of(const gang::AskGroups& request) {
  const auto job = context_.jobs.running_as(request.job, request.incarnation);
  const auto keeper = job && !job->ended() ? job->keeper() : nullptr;
  if (!keeper)
    co_return Error(ErrorCode::kNotFound,
                    "Job " + wire::job_text(request.job) + " does not run on this node");
  local::AskGroups order;
  order.epoch = request.epoch;
  for (const std::uint32_t rank : request.moved) {
    if (rank >= local::kMaxRanks)
      co_return Error(ErrorCode::kInvalidArgument, "There is no rank " + std::to_string(rank));
    order.moved[rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
  const std::uint32_t limit = request.timeout_ms == 0 ? kTicketsMs : std::min(request.timeout_ms, kTicketsMs);
  auto asked = co_await keeper->ask_groups(order, Milliseconds(limit));
  if (!asked && asked.error().code() == ErrorCode::kTimedOut)
    co_return Error(ErrorCode::kTimedOut, "The process of the rank has not answered within " +
                                              std::to_string(limit) +
                                              " ms: the process or a callback of one of its groups hangs");
  CKPT_CO_TRY(groups, std::move(asked));
  gang::RankGroups answer;
  answer.knows_gang = groups.knows_gang;
  for (const local::GroupRecord& record : groups.records) {
    gang::GroupTicket& ticket = answer.groups.emplace_back();
    ticket.group = record.name.str();
    ticket.ticket.assign(record.ticket.begin(), record.ticket.begin() + record.bytes);
  }
  co_return std::move(answer);
}

Result<void> GangMoves::set_limits(const wire::SetLimits& limits) {
  for (const auto& [key, known] : members_) {
    if (!known.source || known.info.migration != limits.migration || !sends(limits.migration)) continue;
    known.source->set_limits(limits.max_downtime_ns, limits.bandwidth_bytes_per_second);
    return ok();
  }
  return Error(ErrorCode::kNotFound,
               "Migration " + wire::migration_text(limits.migration) + " has no source on this node");
}

// ---- reports of moves about jobs ----

bool GangMoves::sends(wire::MigrationId migration) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& at) {
    const gang::PartyState* state = driver_.parties().find(at.first);
    return at.second.source && at.second.info.migration == migration && state != nullptr &&
           !gang::is_closed(*state);
  });
}

bool GangMoves::may_run_freely(const Job& job) const {
  const auto is_of = [&](const PartyKey& key) {
    const Member* known = find(key);
    return known == nullptr || job.incarnation() <= last_incarnation(*known, key.party.role);
  };
  for (const auto& [key, known] : members_)
    if (known.job == job.id()) return driver_.parties().may_run_freely(known.gang, known.rank, is_of);
  return true;
}

bool GangMoves::is_open(wire::JobId job) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& at) {
    const gang::PartyState* state = driver_.parties().find(at.first);
    return at.second.job == job && state != nullptr && !gang::is_closed(*state);
  });
}

bool GangMoves::has_promised(wire::MigrationId migration) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& at) {
    const gang::PartyState* state = driver_.parties().find(at.first);
    return at.second.target && at.second.info.migration == migration && state != nullptr &&
           gang::phase_name(*state) == "PROMISED";
  });
}

// Releases closed moves. The sessions of some closed moves stay, because their measurements are sent again
// after the coordinator was disconnected.
void GangMoves::release_closed() {
  for (const auto& [id, plan] : plans_) {
    const auto is_open_party = [this, move = id](const auto& at) {
      const gang::PartyState* state = driver_.parties().find(at.first);
      return at.first.migration == move && state != nullptr && !gang::is_closed(*state);
    };
    if (std::none_of(members_.begin(), members_.end(), is_open_party)) peers_.drop(id);
  }
  std::erase_if(members_, [this](const auto& at) { return driver_.parties().find(at.first) == nullptr; });
  for (auto at = members_.begin(); members_.size() > kKeptMembers && at != members_.end();) {
    const bool is_closed = gang::is_closed(*driver_.parties().find(at->first));
    at = is_closed ? members_.erase(at) : std::next(at);
  }
  std::erase_if(plans_, [this](const auto& at) {
    return std::none_of(members_.begin(), members_.end(),
                        [&at](const auto& known) { return known.first.migration == at.first; });
  });
}

void GangMoves::forget(wire::JobId job) {
  std::set<wire::MigrationId> of_job;
  for (const auto& [key, known] : members_)
    if (known.job == job) of_job.insert(key.migration);
  if (of_job.empty()) return;
  std::erase_if(members_,
                [&](const auto& at) { return of_job.contains(at.first.migration) && !is_open(job); });
  driver_.forget([of_job](const gang::GangInfo& info) { return of_job.contains(info.migration); });
}

}  // namespace ckpt::agent
