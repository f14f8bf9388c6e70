// SPDX-License-Identifier: Apache-2.0
// Tests every Xid and every recovery action of the tables through decide(). The expected outcomes restate
// operations.md and NVIDIA's catalog as rules. The test fails for an Xid without a rule, and for a rule whose
// Xid is not in the table.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "libckpt/health/decide.h"

namespace ckpt::health {
namespace {

constexpr Outcome kNone = Outcome::kNone;
constexpr Outcome kLive = Outcome::kLive;
constexpr Outcome kRestore = Outcome::kRestore;

constexpr std::int32_t kVictim = 100;
constexpr std::int32_t kTenant = 200;
constexpr std::int32_t kPeer = 300;  // a tenant that uses peer-to-peer access

struct Expected {
  Outcome victim = kNone;
  Outcome tenant = kNone;
  Outcome peer = kNone;
  bool cordon = false;
  bool urgent = false;
  bool leave_node = false;
};

std::set<std::uint32_t> range(std::uint32_t first, std::uint32_t last) {
  std::set<std::uint32_t> out;
  for (std::uint32_t xid = first; xid <= last; ++xid) out.insert(xid);
  return out;
}

std::set<std::uint32_t> together(std::initializer_list<std::set<std::uint32_t>> parts) {
  std::set<std::uint32_t> out;
  for (const auto& part : parts) out.insert(part.begin(), part.end());
  return out;
}

// Returns the expected outcomes by Xid on a GPU that contains errors (H200).
std::map<std::uint32_t, Expected> rules() {
  const std::set<std::uint32_t> copy_engines =
      together({{39, 40, 41}, {70, 71, 72}, {75, 76, 77}, {85}, range(126, 135)});
  const std::set<std::uint32_t> video = together({{68, 82, 83, 84, 86, 88, 89}, range(96, 105), {139}});
  struct Rule {
    std::set<std::uint32_t> xids;
    Expected expected;
  };
  const std::vector<Rule> list = {
      // Application faults, sympathetic cleanup and notes: they affect only the job, and the GPU continues to
      // work.
      {{8, 11, 13, 14, 25, 31, 43, 45, 60, 69, 108, 137, 141, 174}, {}},
      {video, {}},
      {{37, 38, 44, 66, 67}, {}},                              // firmware reports
      {{78, 93, 106, 107, 122, 123, 124, 125, 152, 153}, {}},  // informational notes
      {{162, 163, 164, 165}, {}},                              // power smoothing events
      {{142, 147, 148, 166, 168, 170}, {}},                    // no effect on the existing memory
      {{154}, {}},  // decided by the number in the Xid, not by the table
      // Faults of the bus under one process, or of its copy engine: this process is lost, other processes are
      // not.
      {{32, 80}, {kRestore, kLive, kLive, true, true, false}},
      {copy_engines, {kRestore, kLive, kLive, true, true, false}},
      // Memory errors that the GPU contains.
      {{48, 94, 156, 171, 172}, {kRestore, kLive, kLive, true, true, false}},
      // Errors that predict a failure: jobs move when memory and time are available.
      {{54, 63, 92, 121, 157, 160, 161, 176}, {kLive, kLive, kLive, true, false, false}},
      {{64}, {kLive, kLive, kLive, true, true, false}},
      // NVLink is down: memory is readable, but peer-to-peer access fails.
      {{74, 136, 155}, {kLive, kLive, kRestore, true, true, false}},
      {{149}, {kLive, kLive, kRestore, true, true, false}},
      {{144, 145, 146, 150},
       {kRestore, kRestore, kRestore, true, true, false}},  // an Xid that cannot be decoded counts as fatal
      // The memory of no process can be trusted or read.
      {{95, 140}, {kRestore, kRestore, kRestore, true, true, false}},
      {{46, 61, 62, 109, 110, 119, 120, 143, 158, 159, 167, 169, 173, 175},
       {kRestore, kRestore, kRestore, true, true, false}},
      // The node must also be restarted.
      {{79, 151}, {kRestore, kRestore, kRestore, true, true, true}},
  };
  std::map<std::uint32_t, Expected> out;
  for (const Rule& rule : list) {
    for (const std::uint32_t xid : rule.xids)
      EXPECT_TRUE(out.emplace(xid, rule.expected).second) << "twice: Xid " << xid;
  }
  return out;
}

Evidence three_processes() {
  Evidence evidence;
  evidence.gpu.recovery = 0;
  evidence.gpu.contains_errors = true;
  for (const std::int32_t pid : {kVictim, kTenant, kPeer}) {
    ProcessFacts process;
    process.pid = pid;
    process.probe = pid == kVictim ? Probe::kUnknown : Probe::kAlive;
    process.uses_p2p = pid == kPeer;
    evidence.processes.push_back(process);
  }
  return evidence;
}

SeenXid hit(std::uint32_t xid) {
  SeenXid seen;
  seen.xid = xid;
  seen.victim = kVictim;
  return seen;
}

void expect(const Decision& decision, const Expected& expected) {
  ASSERT_EQ(decision.processes.size(), 3U);
  EXPECT_EQ(decision.processes[0].outcome, expected.victim) << decision.processes[0].reason;
  EXPECT_EQ(decision.processes[1].outcome, expected.tenant) << decision.processes[1].reason;
  EXPECT_EQ(decision.processes[2].outcome, expected.peer) << decision.processes[2].reason;
  EXPECT_EQ(decision.outcome, expected.tenant) << decision.reason;
  EXPECT_EQ(decision.cordon, expected.cordon) << decision.reason;
  EXPECT_EQ(decision.urgent, expected.urgent) << decision.reason;
  EXPECT_EQ(decision.leave_node, expected.leave_node) << decision.reason;
  EXPECT_FALSE(decision.reason.empty());
  for (const ProcessVerdict& verdict : decision.processes) EXPECT_FALSE(verdict.reason.empty());
}

TEST(EveryRow, EachXidOfTheTableGivesItsExpectedOutcome) {
  const XidTable table = XidTable::built_in();
  const auto expected = rules();
  for (const auto& [xid, row] : table.xids()) {
    SCOPED_TRACE("Xid " + std::to_string(xid) + " " + row.name);
    const auto rule = expected.find(xid);
    ASSERT_NE(rule, expected.end()) << "no rule for it";
    Evidence evidence = three_processes();
    evidence.xids.push_back(hit(xid));
    const Decision decision = decide(table, evidence);
    expect(decision, rule->second);
    EXPECT_EQ(decision.xid, xid);
  }
  for (const auto& [xid, rule] : expected)
    EXPECT_NE(table.xid(xid), nullptr) << "not in the table: Xid " << xid;
}

TEST(EveryRow, UncontainedMemoryErrorAffectsEveryProcess) {
  const XidTable table = XidTable::built_in();
  for (const std::uint32_t xid : {48U, 171U, 172U}) {
    for (const std::optional<bool> contains : {std::optional<bool>(false), std::optional<bool>()}) {
      Evidence evidence = three_processes();
      evidence.gpu.contains_errors = contains;
      evidence.xids.push_back(hit(xid));
      expect(decide(table, evidence), {kRestore, kRestore, kRestore, true, true, false});
    }
  }
}

std::map<std::uint32_t, Expected> recovery_rules() {
  return {{1, {kRestore, kRestore, kRestore, true, true, false}},
          {2, {kRestore, kRestore, kRestore, true, true, true}},
          {3, {kRestore, kLive, kRestore, true, true, false}},
          {4, {kRestore, kLive, kLive, true, true, false}},
          {6, {kRestore, kRestore, kRestore, true, true, false}},
          {7, {kRestore, kRestore, kRestore, true, true, true}}};
}

TEST(EveryRow, EachRecoveryActionOverridesEachXid) {
  const XidTable table = XidTable::built_in();
  const auto by_xid = rules();
  const auto by_recovery = recovery_rules();
  for (const auto& [value, recovery] : table.recoveries()) {
    for (const auto& [xid, row] : table.xids()) {
      SCOPED_TRACE("recovery " + recovery.name + ", Xid " + std::to_string(xid));
      Evidence evidence = three_processes();
      evidence.gpu.recovery = value;
      evidence.xids.push_back(hit(xid));
      const auto rule = by_recovery.find(value);
      Expected expected = rule == by_recovery.end() ? by_xid.at(xid) : rule->second;
      // A drain restores jobs whose context is lost. If the Xids leave every context valid, no context is
      // lost.
      const bool drains = value == 3 || value == 4;
      if (drains && row.memory_readable == Readable::kYes) expected.victim = kLive;
      expect(decide(table, evidence), expected);
    }
  }
  EXPECT_EQ(table.recoveries().size(), 8U);
}

TEST(EveryRow, EachRecoveryActionAloneGivesItsExpectedOutcome) {
  const XidTable table = XidTable::built_in();
  const auto rules = recovery_rules();
  for (const auto& [value, recovery] : table.recoveries()) {
    SCOPED_TRACE("recovery " + recovery.name);
    Evidence evidence = three_processes();
    evidence.gpu.recovery = value;
    const auto rule = rules.find(value);
    Expected expected = rule == rules.end() ? Expected{} : rule->second;
    if (value == 3 || value == 4) expected.victim = kLive;  // no fault has affected it
    expect(decide(table, evidence), expected);
  }
}

}  // namespace
}  // namespace ckpt::health
