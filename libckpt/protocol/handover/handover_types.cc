// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/handover_types.h"

#include <algorithm>

namespace ckpt::migration {
namespace {

std::string describe_body(const wire::Body& body) {
  std::string text(wire::name_of(body));
  if (const auto* r = std::get_if<wire::Resumed>(&body)) {
    text += "(" + std::to_string(r->k) + (r->owner ? ",owner" : "") +
            (r->never_barrier ? ",never-barrier" : "") + ")";
  } else if (const auto* c = std::get_if<wire::Closed>(&body)) {
    text += "(" + std::string(to_string(c->side)) + ")";
  } else if (const auto* q = std::get_if<wire::Query>(&body)) {
    text += q->give_up ? "(give-up)" : "";
  } else {
    std::visit(
        [&](const auto& b) {
          if constexpr (requires { b.k; }) text += "(" + std::to_string(b.k) + ")";
        },
        body);
  }
  return text;
}

struct Describe {
  std::string operator()(const Send& a) const {
    return "send " + std::string(1, to_string(a.from)[0]) + ">" + std::string(1, to_string(a.to)[0]) + " " +
           describe_body(a.body);
  }
  std::string operator()(const WriteRecord& a) const {
    std::string text = "record " + std::string(to_string(a.record.kind));
    if (a.record.k != 0) text += "(" + std::to_string(a.record.k) + ")";
    if (a.record.side != 0) text += "(" + std::string(to_string(static_cast<Side>(a.record.side))) + ")";
    if (a.record.owner) text += " owner";
    if (a.record.never_barrier) text += " never-barrier";
    return text;
  }
  std::string operator()(const ArmTimer& a) const { return "arm " + std::string(to_string(a.timer)); }
  std::string operator()(const DisarmTimer& a) const { return "disarm " + std::string(to_string(a.timer)); }
  std::string operator()(const Report& a) const {
    return "report " + std::string(to_string(a.kind)) + (a.k != 0 ? "(" + std::to_string(a.k) + ")" : "");
  }
  std::string operator()(const RunInstance& a) const {
    return "run-instance(" + std::to_string(a.k) + ")" + (a.deadline ? " leased" : " owner");
  }
  std::string operator()(const PrepareSource& /*a*/) const { return "prepare-source"; }
  std::string operator()(const StartPrecopy& /*a*/) const { return "start-precopy"; }
  std::string operator()(const PauseJob& /*a*/) const { return "pause-job"; }
  std::string operator()(const RunFinalRound& /*a*/) const { return "run-final-round"; }
  std::string operator()(const ReleaseManifest& /*a*/) const { return "release-manifest"; }
  std::string operator()(const StopCopy& /*a*/) const { return "stop-copy"; }
  std::string operator()(const FreeSource& /*a*/) const { return "free-source"; }
  std::string operator()(const PrepareStandby& /*a*/) const { return "prepare-standby"; }
  std::string operator()(const StartReceiving& /*a*/) const { return "start-receiving"; }
  std::string operator()(const FreeTarget& /*a*/) const { return "free-target"; }
};

}  // namespace

std::string_view to_string(Timer timer) noexcept {
  switch (timer) {
    case Timer::kPoll:
      return "poll";
    case Timer::kPause:
      return "pause";
    case Timer::kHandover:
      return "switch";
    case Timer::kLease:
      return "lease";
    case Timer::kMigration:
      return "migration";
  }
  return "invalid";
}

std::string_view to_string(ReportKind kind) noexcept {
  switch (kind) {
    case ReportKind::kPrepared:
      return "prepared";
    case ReportKind::kGranted:
      return "granted";
    case ReportKind::kVerified:
      return "verified";
    case ReportKind::kCommitted:
      return "committed";
    case ReportKind::kRunsAtTarget:
      return "runs-at-target";
    case ReportKind::kRunsAtSource:
      return "runs-at-source";
    case ReportKind::kRefused:
      return "refused";
    case ReportKind::kAborted:
      return "aborted";
    case ReportKind::kClosedSource:
      return "closed-source";
    case ReportKind::kRestored:
      return "restored";
    case ReportKind::kClosedTarget:
      return "closed-target";
    case ReportKind::kAbortTooLate:
      return "abort-too-late";
    case ReportKind::kWaits:
      return "waits";
    case ReportKind::kReleased:
      return "released";
    case ReportKind::kGaveUp:
      return "gave-up";
    case ReportKind::kJobDied:
      return "job-died";
    case ReportKind::kForgotten:
      return "forgotten";
  }
  return "invalid";
}

std::string describe(const Action& action) {
  return std::visit(Describe{}, action);
}

void ask_lease(HeldLease& lease, Incarnation k, Nanos now) {
  constexpr std::size_t kMaxAsked = 8;
  if (lease.k != k) lease = HeldLease{k, 0, {}};
  if (lease.asked.size() == kMaxAsked) lease.asked.erase(lease.asked.begin());
  lease.asked.push_back(now);
}

bool accept_lease(HeldLease& lease, const wire::Lease& answer, Nanos now, const Timing& timing) {
  if (answer.k != lease.k ||
      std::find(lease.asked.begin(), lease.asked.end(), answer.sent_at_ns) == lease.asked.end())
    return false;
  const Nanos deadline = answer.sent_at_ns + answer.term_ms * kNanosPerMs;
  std::erase_if(lease.asked, [&](Nanos asked) { return asked <= answer.sent_at_ns; });
  if (deadline <= lease.deadline) return false;
  lease.deadline = deadline;
  return lasts(lease, now, timing);
}

bool lasts(const HeldLease& lease, Nanos now, const Timing& timing) noexcept {
  return lease.deadline > now + timing.lease_margin_ms * kNanosPerMs;
}

}  // namespace ckpt::migration
