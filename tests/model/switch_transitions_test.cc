// SPDX-License-Identifier: Apache-2.0
// Tests of the machines against transitions.txt. In thousands of random lives, the journals of the three
// parties contain exactly the successions of records that the table allows. check.sh proves the same table
// for the model.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/unit/libckpt/protocol/handover/switch_world.h"

namespace ckpt::migration::test {
namespace {

std::string name_of(const Record& record) {
  if (record.kind == RecordKind::kClosed) return record.side == 1 ? "CLOSED-source" : "CLOSED-target";
  if (record.kind == RecordKind::kResumed && record.never_barrier) return "NEVER";
  return std::string(to_string(record.kind));
}

std::set<std::string> read_table() {
  std::ifstream file(TRANSITIONS_FILE);
  std::set<std::string> table;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') table.insert(line);
  return table;
}

void collect(const std::vector<Record>& journal, std::set<std::string>& seen,
             const std::map<MigrationId, std::size_t>& forgotten = {}) {
  std::map<std::pair<MigrationId, Role>, std::string> last;
  std::map<MigrationId, std::size_t> unmet = forgotten;
  for (std::size_t i = 0; i < journal.size(); ++i) {
    const Record& record = journal[i];
    const auto gone = unmet.find(record.info.migration);
    if (gone != unmet.end() && i >= gone->second) {
      last[{record.info.migration, record.party}] = "FORGOTTEN";
      unmet.erase(gone);
    }
    std::string& before = last[{record.info.migration, record.party}];
    const std::string now = name_of(record);
    // A tombstone or an owner's record may be repeated without new meaning.
    if (before == now && (now == "NEVER" || now == "RELINQUISHED")) continue;
    seen.insert(std::string(to_string(record.party)) + " " + (before.empty() ? "-" : before) + " " + now);
    before = now;
  }
}

// Moves the grant to the source and back (SW-12). This needs three disconnections in the right order, too
// rare for chance.
void there_and_back(std::set<std::string>& seen) {
  World world({.seed = 1});
  world.hold("Ran");
  world.migrate(0, 1);
  world.run_for(1'000);
  world.cut(1, 2, true);
  world.cut(0, 1, true);
  world.run_for(30'000);
  EXPECT_EQ(world.highest_run(), 3U);
  world.cut(0, 2, true);
  world.cut(1, 2, false);
  world.run_for(30'000);
  EXPECT_EQ(world.highest_run(), 4U);
  world.cut(0, 2, false);
  world.cut(0, 1, false);
  world.release_held();
  world.run_for(30'000);
  EXPECT_EQ(world.first_violation(), "");
  EXPECT_TRUE(world.runs_on(1));
  for (const int node : {0, 1, kCoordinatorNode}) collect(world.journal(node), seen);
}

// Grants again after a loss of the store. The store is lost while the target runs and the sides cannot reach
// each other. If they could, the source would lend, and no grant would be needed.
void granted_anew(std::set<std::string>& seen) {
  World world({.seed = 1});
  world.hold("Ran");
  world.migrate(0, 1);
  world.run_for(1'000);
  world.cut(0, 1, true);
  world.lose_store(SIZE_MAX);
  world.restart(kCoordinatorNode);
  world.run_for(30'000);
  world.cut(0, 1, false);
  world.release_held();
  world.run_for(30'000);
  EXPECT_EQ(world.first_violation(), "");
  EXPECT_TRUE(world.runs_on(1));
  for (const int node : {0, 1}) collect(world.journal(node), seen);
  collect(world.journal(kCoordinatorNode), seen, world.forgotten());
}

TEST(HandoverTransitions, TransitionsMatchTheTable) {
  const auto table = read_table();
  ASSERT_FALSE(table.empty());
  std::set<std::string> seen;
  there_and_back(seen);
  granted_anew(seen);
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    Timing timing;
    timing.lease_term_ms = 1'000;
    timing.lease_drift_ms = 50;
    timing.lease_renew_ms = 300;
    timing.poll_ms = 100;
    timing.silence_ms = 400;
    timing.pause_timeout_ms = 2'000;
    timing.handover_timeout_ms = 1'000;
    World world({.seed = seed, .chance = true, .timing = timing});
    for (int i = 0; i < 800; ++i) {
      auto& random = world.random();
      const int from = world.job_node();
      if (random() % 16 == 0) world.migrate(from, 1 - from);
      const int node = static_cast<int>(random() % 3);
      if (random() % 24 == 0) world.cut(node, (node + 1) % 3, random() % 2 == 0);
      if (random() % 40 == 0) world.crash(node);
      if (random() % 20 == 0) world.restart(node);
      if (random() % 100 == 0) world.abort_migration(world.last_migration());
      if (random() % 200 == 0) world.kill_instance(node % 2);
      if (seed % 4 == 0 && random() % 300 == 0)
        world.lose_store(random() % 2 == 0 ? SIZE_MAX : 1 + random() % 4);
      if (!world.step()) world.run_for(100);
    }
    ASSERT_EQ(world.first_violation(), "") << "seed " << seed;
    for (const int node : {0, 1}) collect(world.journal(node), seen);
    collect(world.journal(kCoordinatorNode), seen, world.forgotten());
  }
  for (const auto& line : seen) EXPECT_TRUE(table.contains(line)) << "not in transitions.txt: " << line;
  for (const auto& line : table) EXPECT_TRUE(seen.contains(line)) << "never happened: " << line;
}

}  // namespace
}  // namespace ckpt::migration::test
