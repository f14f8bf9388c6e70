// SPDX-License-Identifier: Apache-2.0
// Tests of the machines against tests/model/gang_transitions.txt. In thousands of random lives, the journals
// of all parties contain exactly the successions of records that the table allows. check.sh proves the same
// table for the model.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <set>

#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {
namespace {

std::string role_name(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kSource:
      return "source";
    case Role::kTarget:
      return "target";
    case Role::kBystander:
      return "bystander";
  }
  return "invalid";
}

std::set<std::string> read_table() {
  std::ifstream file(TRANSITIONS_FILE);
  std::set<std::string> table;
  bool in_comment = false;
  for (std::string line; std::getline(file, line);) {
    in_comment =
        line.starts_with("#") || (in_comment && line.find(' ') != std::string::npos && line.back() == '.');
    if (!line.empty() && !in_comment) table.insert(line);
  }
  return table;
}

void collect(const World& world, std::set<std::string>& seen) {
  for (const auto& [party, journal] : world.journals()) {
    std::string before = "-";
    for (const Record& record : journal) {
      const std::string now = name_of(record);
      // An owner's record repeats its promise; the table begins with BEGUN.
      if (now != before && now != "BEGUN") seen.insert(role_name(party.role) + " " + before + " " + now);
      before = now;
    }
  }
}

Timing fast() {
  Timing timing;
  timing.lease_term_ms = 1'000;
  timing.lease_drift_ms = 50;
  timing.lease_renew_ms = 300;
  timing.poll_ms = 100;
  timing.silence_ms = 400;
  timing.pause_timeout_ms = 2'000;
  timing.handover_timeout_ms = 1'000;
  timing.migration_timeout_ms = 10'000;
  return timing;
}

void live(std::uint64_t seed, std::set<std::string>& seen) {
  World world({.seed = seed,
               .chance = true,
               .moved = static_cast<std::uint32_t>(1 + seed % 2),
               .staying = static_cast<std::uint32_t>(seed / 2 % 3),
               .overlaps = seed % 4 != 0,
               .timing = fast()});
  world.migrate();
  auto& random = world.random();
  for (int i = 0; i < 700; ++i) {
    const auto all = world.everyone();
    const Party party = all[random() % all.size()];
    if (random() % 40 == 0) world.cut_off(party, random() % 2 == 0);
    if (random() % 60 == 0) world.crash(party);
    if (random() % 20 == 0) world.restart(party);
    if (random() % 400 == 0) world.kill_instance(party);
    if (seed % 3 == 0 && random() % 700 == 0 && party != Party()) world.lose(party);
    if (seed % 5 == 0 && random() % 300 == 0) world.abort_migration();
    if (random() % 100 == 0) world.prove_lost(party);
    if (!world.step()) world.run_for(100);
  }
  world.faults_end();
  world.run_for(30'000);
  ASSERT_EQ(world.first_violation(), "") << "seed " << seed;
  collect(world, seen);
}

// Plays events that are too rare for chance: a bystander that holds still, or was lifted, learns that the
// lead has vetoed, or is fenced. The first target is slow, so the bystander is requested to hold still. Then
// a source is lost, which excludes the return. The handover takes too long, or the target is also lost,
// before or after the bystander is lifted.
void ends_after_holding_still(std::optional<int> target_lost_after_ms, std::set<std::string>& seen) {
  World world({.seed = 1, .timing = fast()});
  const Party slow(Role::kTarget, 1);
  const Party lost(Role::kSource, 1);
  world.hold("Ready");
  world.migrate();
  world.run_for(300);
  world.cut(slow, Party(), true);
  world.run_for(600);
  world.lose(lost);
  if (target_lost_after_ms == 0) {
    world.lose(slow);
    world.prove_lost(slow);
  }
  world.prove_lost(lost);
  if (target_lost_after_ms) {
    world.run_for(*target_lost_after_ms);
    world.lose(slow);
    world.prove_lost(slow);
  } else {
    world.cut(slow, Party(), false);
  }
  world.run_for(5'000);
  ASSERT_EQ(world.first_violation(), "");
  collect(world, seen);
}

TEST(GangTransitions, TransitionsMatchTheTable) {
  const auto table = read_table();
  ASSERT_GT(table.size(), 40U);
  std::set<std::string> seen;
  ends_after_holding_still({}, seen);
  ends_after_holding_still(0, seen);
  ends_after_holding_still(100, seen);
  for (std::uint64_t seed = 1; seed <= 8000 && !HasFatalFailure(); ++seed) live(seed, seen);
  for (const auto& line : seen) EXPECT_TRUE(table.contains(line)) << "not in gang_transitions.txt: " << line;
  for (const auto& line : table) EXPECT_TRUE(seen.contains(line)) << "never happened: " << line;
}

}  // namespace
}  // namespace ckpt::gang::test
