// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/decide.h"

#include <algorithm>
#include <array>

namespace ckpt::health {
namespace {

constexpr std::uint32_t kRecoveryNone = 0;
constexpr std::uint32_t kRecoveryReset = 1;
constexpr std::uint32_t kRecoveryDrainAndReset = 4;
constexpr std::uint32_t kXidRowRemap = 63;
constexpr std::uint32_t kXidRowRemapFailure = 64;
constexpr std::uint32_t kXidRecoveryChanged = 154;

// The most severe outcome of all evidence, with its reason, for a process or for the GPU.
struct Opinion {
  Outcome outcome = Outcome::kNone;
  std::string reason;
  void add(Outcome other, const std::string& explanation) {
    if (other <= outcome && !reason.empty()) return;
    outcome = other;
    reason = explanation;
  }
};

// Returns the strength in the driver's own order (gpu.c): reboot, reset, drain and reset, drain peer to peer,
// IMEX, none.
int strength(std::uint32_t recovery) {
  constexpr std::array<std::uint32_t, 8> kWeakestFirst{0, 5, 3, 4, 6, 1, 7, 2};
  const auto found = std::find(kWeakestFirst.begin(), kWeakestFirst.end(), recovery);
  // An unknown action is stronger than none, and weaker than all known actions.
  return found == kWeakestFirst.end() ? 1 : 2 * static_cast<int>(found - kWeakestFirst.begin());
}

std::uint32_t recovery_of(const Evidence& evidence) {
  std::uint32_t recovery = evidence.gpu.recovery.value_or(kRecoveryNone);
  const auto stronger = [&recovery](std::uint32_t other) {
    if (strength(other) > strength(recovery)) recovery = other;
  };
  // Xid 154 reports each change, including the change back to none: the last report counts.
  std::optional<std::uint32_t> changed;
  for (const SeenXid& seen : evidence.xids) {
    if (!seen.recovery) continue;
    if (seen.xid == kXidRecoveryChanged) {
      changed = seen.recovery;
    } else {
      stronger(*seen.recovery);
    }
  }
  if (changed) stronger(*changed);
  return recovery;
}

class Decider {
 public:
  Decider(const XidTable& table, const Evidence& evidence)
      : table_(table), evidence_(evidence), opinions_(evidence.processes.size()) {}

  Decision decide() {
    decision_.recovery = recovery_of(evidence_);
    if (!by_state() && !by_recovery()) {
      by_table();
      if (unnamed_.outcome == Outcome::kNone) by_counters();
      if (unnamed_.outcome == Outcome::kNone) by_probe();
    }
    return finish();
  }

 private:
  static std::string name(const XidRow& row) {
    return "Xid " + std::to_string(row.xid) + " (" + row.name + ")";
  }

  // Decides about a GPU that is missing, or that does not answer a query after a fault.
  bool by_state() {
    const bool fault = std::any_of(evidence_.xids.begin(), evidence_.xids.end(), [this](const SeenXid& seen) {
      const XidRow* row = table_.xid(seen.xid);
      return row != nullptr && row->evacuation != Outcome::kNone;
    });
    if (evidence_.gpu.gone || evidence_.gpu.lost || (evidence_.gpu.silent && fault)) {
      take_first_xid();
      everybody(Outcome::kRestore, evidence_.gpu.gone   ? "the GPU is lost: it is no longer in the node"
                                   : evidence_.gpu.lost ? "the driver has lost the GPU"
                                                        : "the driver does not answer after a fault: the "
                                                          "GPU counts as lost");
      leave_if_a_row_says();
      return grave(true);
    }
    if (!evidence_.gpu.silent) return false;
    decision_.cordon = true;
    everybody(Outcome::kNone, "the driver's management library does not answer; no fault was seen");
    restore_dead("its context is lost, and the driver does not answer");
    return false;  // lets the table's rows be reported, too, although they require no action
  }

  bool by_recovery() {
    if (decision_.recovery == kRecoveryNone) return false;
    const RecoveryRow* row = table_.recovery(decision_.recovery);
    if (row == nullptr) {
      decision_.cordon = true;
      everybody(Outcome::kNone, "recovery action " + std::to_string(decision_.recovery) +
                                    ", which is not known to this build");
      return false;
    }
    const std::string statement = "recovery action " + std::to_string(row->value) + " (" + row->name + ")";
    if (row->evacuation == Outcome::kNone) {
      everybody(Outcome::kNone, statement + ": this is not a fault of the GPU's memory");
      return false;
    }
    take_first_xid();
    if (row->evacuation == Outcome::kRestore) {
      everybody(Outcome::kRestore, statement + ": its memory must not be read");
    } else {
      drain(row->memory_readable, statement);
    }
    decision_.leave_node = row->name.find("REBOOT") != std::string::npos;
    return grave(true);
  }

  void drain(Readable readable, const std::string& statement) {
    const bool unless_p2p = readable == Readable::kUnlessP2p;
    unnamed_.add(Outcome::kLive,
                 statement + (unless_p2p ? ": memory can be read unless the process uses peer to peer"
                                         : ": memory can be read"));
    for (std::size_t i = 0; i < opinions_.size(); ++i) {
      if (context_lost(i)) {
        opinions_[i].add(Outcome::kRestore, statement + ", and its context is lost");
      } else if (unless_p2p && evidence_.processes[i].uses_p2p.value_or(false)) {
        opinions_[i].add(Outcome::kRestore, statement + ", and it uses peer to peer");
      } else {
        opinions_[i].add(Outcome::kLive, unnamed_.reason);
      }
    }
  }

  void by_table() {
    for (const SeenXid& seen : evidence_.xids) {
      const XidRow* row = table_.xid(seen.xid);
      if (row == nullptr) {
        everybody(Outcome::kNone, "Xid " + std::to_string(seen.xid) +
                                      " is not known to this build, which does nothing on this Xid alone");
      } else {
        by_row(*row, &seen);
      }
    }
    for (const auto& [flag, xid] : {std::pair(evidence_.gpu.remap_pending, kXidRowRemap),
                                    std::pair(evidence_.gpu.remap_failed, kXidRowRemapFailure)}) {
      const XidRow* row = table_.xid(xid);
      if (flag && row != nullptr) by_row(*row, nullptr);
    }
  }

  // Decides by error counters. A process that encountered the errors has its own Xid. What remains is that
  // the memory may fail later.
  void by_counters() {
    const std::uint64_t count = evidence_.gpu.uncorrected;
    if (count == 0) return;
    drain(Readable::kYes, std::to_string(count) + " new uncorrected error" + (count == 1 ? "" : "s") +
                              " of its memory without an Xid: the GPU may fail later");
    decision_.cordon = true;
  }

  void by_probe() {
    const GpuFacts& gpu = evidence_.gpu;
    const std::string detail = gpu.probe_detail.empty() ? "" : " (" + gpu.probe_detail + ")";
    if (gpu.probe == GpuProbe::kHung) {
      everybody(Outcome::kRestore,
                "a probe of the GPU hangs" + detail + ": reading its memory may hang as well");
      grave(true);
    } else if (gpu.probe == GpuProbe::kFailed) {
      drain(Readable::kYes, "a probe of the GPU fails" + detail);
      grave(true);
    } else if (gpu.probe == GpuProbe::kPassed) {
      passed_ = "; a probe of the GPU passes";
    }
  }

  // Decides by a row of the table. `seen` is null if the evidence is the GPU's state instead of an Xid.
  void by_row(const XidRow& row, const SeenXid* seen) {
    if (row.xid == kXidRecoveryChanged)
      return everybody(Outcome::kNone, name(row) + ": no recovery action is requested");
    if (seen != nullptr && row.action == Remedy::kDecodeNvlink5 && seen->link)
      return by_link(row, seen->link->severity, *seen);
    if (seen != nullptr && seen->link && row.evacuation != Outcome::kNone)
      return by_link(row, seen->link->severity, *seen);
    if (row.evacuation == Outcome::kNone) return left_to_the_job(row, seen);
    took(row);
    if (row.evacuation == Outcome::kLive) {
      live(row);
    } else {
      restore(row, seen);
    }
  }

  void left_to_the_job(const XidRow& row, const SeenXid* seen) {
    if (seen == nullptr || seen->suspicion.empty())
      return everybody(Outcome::kNone, name(row) + ": only this job is affected");
    took(row);
    decision_.urgent = true;
    unnamed_.add(Outcome::kLive, seen->suspicion + ": the GPU is suspect");
    for (std::size_t i = 0; i < opinions_.size(); ++i)
      opinions_[i].add(is_victim(i, *seen) ? Outcome::kRestore : Outcome::kLive, unnamed_.reason);
  }

  void by_link(const XidRow& row, LinkSeverity severity, const SeenXid& seen) {
    const std::string explanation = name(row) + ": " + seen.link->reason;
    if (severity == LinkSeverity::kNonFatal) return everybody(Outcome::kNone, explanation);
    took(row);
    decision_.urgent = true;
    if (severity == LinkSeverity::kFatal) return everybody(Outcome::kRestore, explanation);
    drain(Readable::kUnlessP2p, explanation);
  }

  void live(const XidRow& row) {
    const bool asks_for_reset = row.action == Remedy::kResetGpu || row.action == Remedy::kDrainThenReset ||
                                row.action == Remedy::kRebootNode;
    decision_.urgent = decision_.urgent || asks_for_reset;
    const bool unless_p2p = row.memory_readable == Readable::kUnlessP2p;
    const std::string statement =
        name(row) + (asks_for_reset ? ": the GPU must be reset" : ": the GPU may fail later");
    unnamed_.add(Outcome::kLive, statement + "; memory can be read");
    for (std::size_t i = 0; i < opinions_.size(); ++i) {
      const ProcessFacts& process = evidence_.processes[i];
      if (process.probe == Probe::kDead) {
        // A process with a lost context cannot move live. Only a GPU that must be drained requires a restore.
        if (row.action == Remedy::kDrainThenReset)
          opinions_[i].add(Outcome::kRestore, statement + ", and its context is lost");
        else
          opinions_[i].add(Outcome::kNone,
                           statement + "; its context is lost for another reason: only this job is affected");
      } else if (unless_p2p && process.uses_p2p.value_or(false)) {
        opinions_[i].add(Outcome::kRestore, statement + ", and it uses peer to peer");
      } else {
        opinions_[i].add(Outcome::kLive, unnamed_.reason);
      }
    }
  }

  void restore(const XidRow& row, const SeenXid* seen) {
    decision_.urgent = true;
    decision_.leave_node =
        decision_.leave_node || row.action == Remedy::kRebootNode || row.action == Remedy::kRestartVm;
    // A memory error that requires a reset is limited to its reader only if the GPU contains errors.
    const bool by_containment = row.cause == "memory" && row.action == Remedy::kResetGpu;
    const bool contained = !by_containment || evidence_.gpu.contains_errors.value_or(false);
    if (row.memory_readable != Readable::kOthers || !contained) {
      const std::string explanation = row.memory_readable == Readable::kUnknown
                                          ? ": reading its memory may hang"
                                      : row.memory_readable == Readable::kOthers
                                          ? ": this GPU does not confine memory errors to one process"
                                          : ": its memory must not be read";
      return everybody(Outcome::kRestore, name(row) + explanation);
    }
    unnamed_.add(Outcome::kLive, name(row) + ": another process's context is lost; memory can be read");
    for (std::size_t i = 0; i < opinions_.size(); ++i) {
      if (seen != nullptr && is_victim(i, *seen)) {
        opinions_[i].add(Outcome::kRestore, name(row) + ": its context is lost");
      } else {
        opinions_[i].add(Outcome::kLive, unnamed_.reason);
      }
    }
  }

  // Returns whether a context-killing Xid has hit the process: the process is known to be dead, or the Xid
  // names it. An Xid without a process has hit the only process, unless that process is known to be alive.
  bool is_victim(std::size_t i, const SeenXid& seen) const {
    const ProcessFacts& process = evidence_.processes[i];
    if (process.probe == Probe::kDead) return true;
    if (seen.victim != 0) return seen.victim == process.pid;
    return process.probe == Probe::kUnknown && evidence_.processes.size() == 1;
  }

  bool context_lost(std::size_t i) const {
    if (evidence_.processes[i].probe == Probe::kDead) return true;
    return std::any_of(evidence_.xids.begin(), evidence_.xids.end(), [&](const SeenXid& seen) {
      const XidRow* row = table_.xid(seen.xid);
      const bool kills = row != nullptr && row->memory_readable != Readable::kYes;
      return kills && seen.victim != 0 && seen.victim == evidence_.processes[i].pid;
    });
  }

  void everybody(Outcome outcome, const std::string& explanation) {
    unnamed_.add(outcome, explanation);
    for (Opinion& opinion : opinions_) opinion.add(outcome, explanation);
  }

  void restore_dead(const std::string& explanation) {
    for (std::size_t i = 0; i < opinions_.size(); ++i) {
      if (evidence_.processes[i].probe == Probe::kDead) opinions_[i].add(Outcome::kRestore, explanation);
    }
  }

  bool grave(bool urgent) {
    decision_.cordon = true;
    decision_.urgent = urgent;
    return true;
  }

  void took(const XidRow& row) {
    decision_.cordon = true;
    if (decision_.xid == 0) decision_.xid = row.xid;
    const XidRow* before = table_.xid(decision_.xid);
    if (before != nullptr && row.evacuation > before->evacuation) decision_.xid = row.xid;
  }

  void take_first_xid() {
    for (const SeenXid& seen : evidence_.xids) {
      const XidRow* row = table_.xid(seen.xid);
      if (row != nullptr && row->evacuation != Outcome::kNone) took(*row);
    }
  }

  void leave_if_a_row_says() {
    for (const SeenXid& seen : evidence_.xids) {
      const XidRow* row = table_.xid(seen.xid);
      if (row == nullptr || row->evacuation != Outcome::kRestore) continue;
      const bool needs_reboot = row->action == Remedy::kRebootNode || row->action == Remedy::kRestartVm;
      decision_.leave_node = decision_.leave_node || needs_reboot;
    }
  }

  Decision finish() {
    decision_.outcome = unnamed_.outcome;
    everybody(Outcome::kNone, "nothing is wrong");  // the outcome where there is no other verdict
    decision_.reason = unnamed_.reason + passed_;
    if (decision_.xid == 0 && !evidence_.xids.empty()) decision_.xid = evidence_.xids.front().xid;
    for (std::size_t i = 0; i < opinions_.size(); ++i) {
      ProcessVerdict verdict;
      verdict.pid = evidence_.processes[i].pid;
      verdict.outcome = opinions_[i].outcome;
      verdict.reason = opinions_[i].reason;
      decision_.processes.push_back(std::move(verdict));
    }
    return std::move(decision_);
  }

  const XidTable& table_;
  const Evidence& evidence_;
  Decision decision_;
  Opinion unnamed_;
  std::string passed_;             // the text that a passed probe adds
  std::vector<Opinion> opinions_;  // the opinions about the processes, in the order of evidence_.processes
};

}  // namespace

Decision decide(const XidTable& table, const Evidence& evidence) {
  return Decider(table, evidence).decide();
}

std::string_view to_string(GpuProbe probe) noexcept {
  switch (probe) {
    case GpuProbe::kPassed:
      return "passed";
    case GpuProbe::kFailed:
      return "failed";
    case GpuProbe::kHung:
      return "hung";
    case GpuProbe::kNotTried:
      break;
  }
  return "none";
}

bool wants_probe(const XidTable& table, const Evidence& evidence, const Decision& decision) {
  const bool decided = decision.outcome != Outcome::kNone || evidence.gpu.probe != GpuProbe::kNotTried;
  const bool unknown_xid =
      std::any_of(evidence.xids.begin(), evidence.xids.end(),
                  [&table](const SeenXid& seen) { return table.xid(seen.xid) == nullptr; });
  const bool unknown_action =
      decision.recovery != kRecoveryNone && table.recovery(decision.recovery) == nullptr;
  return !decided && (evidence.gpu.silent || unknown_xid || unknown_action);
}

SeenXid seen_of(const XidTable& table, const XidLine& line) {
  SeenXid seen;
  seen.xid = line.xid;
  seen.recovery = line.recovery_to;
  if (line.drain_required.value_or(false)) seen.recovery = kRecoveryDrainAndReset;
  if (line.reset_required.value_or(false)) seen.recovery = kRecoveryReset;
  if (line.link) seen.link = decode_link(table, line.xid, *line.link);
  return seen;
}

std::optional<bool> contains_memory_errors(const std::string& model) {
  static constexpr std::array<std::string_view, 14> kContain{"A100", "A30",   "A800",  "H100", "H200",
                                                             "H800", "H20",   "GH200", "B100", "B200",
                                                             "B300", "GB200", "GB300", "GH100"};
  static constexpr std::array<std::string_view, 13> kDoNot{
      "A10", "A16", "A2", "A40", "L4", "L40", "L40S", "T4", "V100", "P100", "GeForce", "Quadro", "RTX"};
  std::optional<bool> contains;
  for (std::string_view rest = model; !rest.empty();) {
    const std::size_t end = std::min(rest.find_first_of(" -_"), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (std::find(kDoNot.begin(), kDoNot.end(), word) != kDoNot.end()) return false;
    if (std::find(kContain.begin(), kContain.end(), word) != kContain.end()) contains = true;
  }
  return contains;
}

}  // namespace ckpt::health
