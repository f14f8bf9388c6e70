// SPDX-License-Identifier: Apache-2.0
// Tests decisions of decide() that depend on more than one fact: the order of the inputs, several Xids, the
// victim, silence and loss.
#include "libckpt/health/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::health {
namespace {

using testing::HasSubstr;

const XidTable& table() {
  static const XidTable built = XidTable::built_in();
  return built;
}

ProcessFacts process(std::int32_t pid, Probe probe = Probe::kUnknown) {
  ProcessFacts facts;
  facts.pid = pid;
  facts.probe = probe;
  return facts;
}

SeenXid seen(std::uint32_t xid, std::int32_t victim = 0) {
  SeenXid out;
  out.xid = xid;
  out.victim = victim;
  return out;
}

Evidence with(std::vector<SeenXid> xids, std::vector<ProcessFacts> processes) {
  Evidence evidence;
  evidence.xids = std::move(xids);
  evidence.processes = std::move(processes);
  return evidence;
}

TEST(Decide, HealthyGpuNeedsNoAction) {
  const Decision decision = decide(table(), with({}, {process(1)}));
  EXPECT_EQ(decision.outcome, Outcome::kNone);
  EXPECT_FALSE(decision.cordon);
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kNone);
}

TEST(Decide, AnUnknownXidAloneCausesNoAction) {
  const Decision decision = decide(table(), with({seen(9999, 1)}, {process(1)}));
  EXPECT_EQ(decision.outcome, Outcome::kNone);
  EXPECT_FALSE(decision.cordon);
  EXPECT_EQ(decision.xid, 9999U);
  EXPECT_THAT(decision.reason, HasSubstr("not known"));
}

TEST(Decide, AnUnknownXidUsesTheRecoveryAction) {
  Evidence evidence = with({seen(9999, 1)}, {process(1)});
  evidence.gpu.recovery = 1;
  EXPECT_EQ(decide(table(), evidence).outcome, Outcome::kRestore);
}

TEST(Decide, TheStrongestXidDecidesForEachProcess) {
  const Decision decision =
      decide(table(), with({seen(45, 1), seen(63), seen(94, 1)}, {process(1), process(2)}));
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kRestore);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kLive);
  EXPECT_EQ(decision.xid, 94U);
  EXPECT_TRUE(decision.urgent);
}

TEST(Decide, LastRecoveryActionOfXid154IsUsed) {
  SeenXid reset = seen(154);
  reset.recovery = 1;
  SeenXid none = seen(154);
  none.recovery = 0;
  EXPECT_EQ(decide(table(), with({reset}, {process(1)})).outcome, Outcome::kRestore);
  EXPECT_EQ(decide(table(), with({reset, none}, {process(1)})).outcome, Outcome::kNone);
  EXPECT_EQ(decide(table(), with({none, reset}, {process(1)})).outcome, Outcome::kRestore);
}

TEST(Decide, Xid154WithoutAnActionIsReported) {
  EXPECT_THAT(decide(table(), with({seen(154)}, {process(1)})).reason, HasSubstr("no recovery action"));
}

TEST(Decide, TheStrongerRecoveryActionOfFieldAndLogIsUsed) {
  SeenXid reset = seen(154);
  reset.recovery = 1;
  Evidence evidence = with({reset}, {process(1)});
  evidence.gpu.recovery = 2;
  EXPECT_EQ(decide(table(), evidence).recovery, 2U);
  evidence.gpu.recovery = 4;
  EXPECT_EQ(decide(table(), evidence).recovery, 1U);
  evidence.gpu.recovery = 77;  // an unknown recovery action
  EXPECT_EQ(decide(table(), evidence).recovery, 1U);
}

TEST(Decide, AnUnknownRecoveryActionCordonsTheGpuAndTheTableDecidesTheOutcome) {
  Evidence evidence = with({}, {process(1)});
  evidence.gpu.recovery = 77;
  const Decision decision = decide(table(), evidence);
  EXPECT_TRUE(decision.cordon);
  EXPECT_EQ(decision.outcome, Outcome::kNone);
  evidence.xids.push_back(seen(95));
  EXPECT_EQ(decide(table(), evidence).outcome, Outcome::kRestore);
}

TEST(Decide, ContainedErrorWithoutAPidAffectsDeadProcessesOrTheOnlyProcess) {
  auto one = decide(table(), with({seen(94)}, {process(1)}));
  EXPECT_EQ(one.processes[0].outcome, Outcome::kRestore);
  auto alive = decide(table(), with({seen(94)}, {process(1, Probe::kAlive)}));
  EXPECT_EQ(alive.processes[0].outcome, Outcome::kLive);
  auto two = decide(table(), with({seen(94)}, {process(1, Probe::kDead), process(2)}));
  EXPECT_EQ(two.processes[0].outcome, Outcome::kRestore);
  EXPECT_EQ(two.processes[1].outcome, Outcome::kLive);
}

TEST(Decide, DeadProcessOfAPredictiveXidIsRestoredOnlyOnADrainedGpu) {
  const std::vector<ProcessFacts> processes{process(1, Probe::kDead), process(2, Probe::kAlive)};
  EXPECT_EQ(decide(table(), with({seen(63)}, processes)).processes[0].outcome, Outcome::kNone);
  EXPECT_EQ(decide(table(), with({seen(64)}, processes)).processes[0].outcome, Outcome::kRestore);
  EXPECT_EQ(decide(table(), with({seen(64)}, processes)).processes[1].outcome, Outcome::kLive);
}

TEST(Decide, ALostGpuRestoresAllProcesses) {
  Evidence evidence = with({}, {process(1, Probe::kAlive)});
  evidence.gpu.lost = true;
  const Decision decision = decide(table(), evidence);
  EXPECT_EQ(decision.outcome, Outcome::kRestore);
  EXPECT_TRUE(decision.cordon && decision.urgent);
  EXPECT_FALSE(decision.leave_node);
  evidence.xids.push_back(seen(79));
  EXPECT_TRUE(decide(table(), evidence).leave_node);
}

TEST(Decide, SilentGpuIsCordonedAndOnlyItsDeadProcessesAreRestored) {
  Evidence evidence = with({}, {process(1, Probe::kAlive), process(2, Probe::kDead), process(3)});
  evidence.gpu.silent = true;
  const Decision decision = decide(table(), evidence);
  EXPECT_TRUE(decision.cordon);
  EXPECT_FALSE(decision.urgent);
  EXPECT_EQ(decision.outcome, Outcome::kNone);
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kNone);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kRestore);
  EXPECT_EQ(decision.processes[2].outcome, Outcome::kNone);
}

TEST(Decide, SilenceAfterAFaultIsTreatedAsALostGpu) {
  Evidence evidence = with({seen(74)}, {process(1, Probe::kAlive)});
  evidence.gpu.silent = true;
  EXPECT_EQ(decide(table(), evidence).outcome, Outcome::kRestore);
  evidence.xids = {seen(13, 1)};  // a fault of an application
  EXPECT_EQ(decide(table(), evidence).outcome, Outcome::kNone);
}

TEST(Decide, RowRemappingStateIsTreatedAsItsXid) {
  Evidence evidence = with({}, {process(1)});
  evidence.gpu.remap_pending = true;
  Decision decision = decide(table(), evidence);
  EXPECT_EQ(decision.outcome, Outcome::kLive);
  EXPECT_FALSE(decision.urgent);
  EXPECT_EQ(decision.xid, 63U);
  evidence.gpu.remap_failed = true;
  decision = decide(table(), evidence);
  EXPECT_TRUE(decision.urgent);
}

TEST(Decide, ASuspectGpuRestoresTheFailedProcessElsewhere) {
  SeenXid repeated = seen(13, 1);
  repeated.suspicion = "Xid 13 occurred again";
  const Decision decision = decide(table(), with({repeated}, {process(1), process(2)}));
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kRestore);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kLive);
  EXPECT_TRUE(decision.cordon);
  EXPECT_TRUE(decision.urgent);
  EXPECT_THAT(decision.reason, HasSubstr("occurred again"));
}

TEST(Decide, ResetFlagsOfTheLogLineDecide) {
  const auto line = [](const char* flags) {
    return seen_of(
        table(),
        *parse_xid_line(std::string("NVRM: Xid (PCI:0000:01:00): 94, pid=7194, Contained. ") + flags));
  };
  EXPECT_EQ(line("RST: No, D-RST: No").recovery, std::nullopt);
  EXPECT_EQ(line("RST: Yes, D-RST: No").recovery, 1U);
  EXPECT_EQ(line("RST: No, D-RST: Yes").recovery, 4U);
  EXPECT_EQ(line("RST: Yes, D-RST: Yes").recovery, 1U);  // unreadable memory takes precedence
}

TEST(Decide, NvLinkLinesDecideByTheirSeverity) {
  const auto of = [](const char* text) {
    return decide(
        table(), with({seen_of(table(), *parse_xid_line(std::string("NVRM: Xid (PCI:0018:01:00): ") + text))},
                      {process(1, Probe::kAlive)}));
  };
  EXPECT_EQ(of("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)").outcome, Outcome::kLive);
  EXPECT_EQ(of("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 08 (0x00000226 0x00000001)").outcome,
            Outcome::kNone);
  EXPECT_EQ(of("144, SAW_MVB Fatal XC0 i0 Link 08 (0x00000021 0x00000002)").outcome, Outcome::kRestore);
  EXPECT_TRUE(of("144, SAW_MVB Fatal XC0 i0 Link 08 (0x00000021 0x00000002)").urgent);
  EXPECT_TRUE(of("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)").urgent);
  EXPECT_EQ(of("144, SAW_MVB Nonfatal XC0 i0 Link 08 (0x00000021 0x00000004)").outcome, Outcome::kNone);
}

TEST(Decide, ModelsThatContainMemoryErrorsAreRecognized) {
  for (const char* model :
       {"NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA GB200", "NVIDIA A30"})
    EXPECT_EQ(contains_memory_errors(model), true) << model;
  for (const char* model : {"NVIDIA A10", "NVIDIA RTX A1000", "A100 in a GeForce box", "NVIDIA L40S",
                            "Tesla T4", "NVIDIA GeForce RTX 4090"})
    EXPECT_EQ(contains_memory_errors(model), false) << model;
  for (const char* model : {"", "software", "NVIDIA A1000X"})
    EXPECT_EQ(contains_memory_errors(model), std::nullopt) << model;
}

Evidence probed(Evidence evidence, GpuProbe result) {
  evidence.gpu.probe = result;
  evidence.gpu.probe_detail = "detail";
  return evidence;
}

TEST(Probe, HungProbeRestoresEveryProcessIfNoOtherEvidenceDecides) {
  const Decision decision = decide(table(), probed(with({}, {process(1), process(2)}), GpuProbe::kHung));
  EXPECT_EQ(decision.outcome, Outcome::kRestore);
  EXPECT_TRUE(decision.cordon && decision.urgent);
  EXPECT_FALSE(decision.leave_node);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kRestore);
  EXPECT_THAT(decision.reason, HasSubstr("probe of the GPU hangs (detail)"));
}

TEST(Probe, FailedProbeMigratesLiveProcesses) {
  const auto evidence = probed(with({}, {process(1), process(2, Probe::kDead)}), GpuProbe::kFailed);
  const Decision decision = decide(table(), evidence);
  EXPECT_TRUE(decision.cordon && decision.urgent);
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kLive);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kRestore);
}

TEST(Probe, AnApplicationFaultDoesNotOverrideTheProbe) {
  EXPECT_EQ(decide(table(), probed(with({seen(13, 1)}, {process(1)}), GpuProbe::kHung)).outcome,
            Outcome::kRestore);
}

TEST(Probe, RecoveryActionOverridesTheProbe) {
  Evidence evidence = probed(with({}, {process(1)}), GpuProbe::kHung);
  evidence.gpu.recovery = 4;
  const Decision decision = decide(table(), evidence);
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kLive);
  EXPECT_THAT(decision.reason, HasSubstr("DRAIN_AND_RESET"));
}

TEST(Probe, GpuXidOverridesTheProbe) {
  const Decision decision = decide(table(), probed(with({seen(64)}, {process(1)}), GpuProbe::kHung));
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kLive);
  EXPECT_EQ(decision.xid, 64U);
  const Decision restored = decide(table(), probed(with({seen(79)}, {process(1)}), GpuProbe::kPassed));
  EXPECT_EQ(restored.outcome, Outcome::kRestore);
}

TEST(Probe, HungProbeOfAGpuThatDoesNotAnswerCausesARestore) {
  Evidence evidence = with({}, {process(1)});
  evidence.gpu.silent = true;
  EXPECT_EQ(decide(table(), probed(evidence, GpuProbe::kHung)).outcome, Outcome::kRestore);
  const Decision passed = decide(table(), probed(evidence, GpuProbe::kPassed));
  EXPECT_EQ(passed.outcome, Outcome::kNone);
  EXPECT_TRUE(passed.cordon);
  EXPECT_THAT(passed.reason, HasSubstr("does not answer"));
  EXPECT_THAT(passed.reason, HasSubstr("a probe of the GPU passes"));
}

TEST(Probe, ProbeIsRequestedOnUndecidedEvidence) {
  const auto wanted = [](const Evidence& evidence) {
    return wants_probe(table(), evidence, decide(table(), evidence));
  };
  Evidence silent = with({}, {process(1)});
  silent.gpu.silent = true;
  EXPECT_TRUE(wanted(silent));
  EXPECT_TRUE(wanted(with({seen(9999)}, {process(1)})));
  Evidence unknown_action = with({}, {process(1)});
  unknown_action.gpu.recovery = 99;
  EXPECT_TRUE(wanted(unknown_action));
  EXPECT_FALSE(wanted(with({seen(79)}, {process(1)})));
  EXPECT_FALSE(wanted(with({seen(13, 1)}, {process(1)})));
  EXPECT_FALSE(wanted(with({}, {process(1)})));
  EXPECT_FALSE(wanted(probed(silent, GpuProbe::kPassed)));
}

TEST(Counters, NewUncorrectedErrorsCauseANonurgentMoveUnlessAnXidDecides) {
  Evidence evidence = with({}, {process(1), process(2, Probe::kDead)});
  evidence.gpu.uncorrected = 2;
  const Decision decision = decide(table(), evidence);
  EXPECT_TRUE(decision.cordon);
  EXPECT_FALSE(decision.urgent);
  EXPECT_EQ(decision.processes[0].outcome, Outcome::kLive);
  EXPECT_EQ(decision.processes[1].outcome, Outcome::kRestore);
  EXPECT_THAT(decision.reason, HasSubstr("2 new uncorrected errors"));
  evidence.xids.push_back(seen(95));
  EXPECT_EQ(decide(table(), evidence).outcome, Outcome::kRestore);
  evidence.xids = {seen(13, -1)};  // a fault of another program
  EXPECT_EQ(decide(table(), evidence).processes[0].outcome, Outcome::kLive);
}

TEST(Counters, CountersOverrideTheProbe) {
  Evidence evidence = probed(with({}, {process(1)}), GpuProbe::kHung);
  evidence.gpu.uncorrected = 1;
  EXPECT_EQ(decide(table(), evidence).processes[0].outcome, Outcome::kLive);
}

}  // namespace
}  // namespace ckpt::health
