// SPDX-License-Identifier: Apache-2.0
// Runs an unmodified program under the shim and a keeper, with the test as its agent. The program's memory is
// exported and imported again, and its bytes do not change.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <set>

#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {
namespace {

using local::MemorySet;
using local::MemoryState;

struct Held {
  local::RegionRecord record;
  UniqueFd descriptor;
};

class ShimRankTest : public KeeperTest {
 protected:
  std::string start_program(const std::vector<std::string>& more = {}, const Json& env = Json::object()) {
    const std::string folder = root_ + "/job";
    Json config = this->config({});
    config["argv"] = {PROGRAM, stop_file()};
    for (const std::string& word : more) config["argv"].push_back(word);
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const auto equals = text.find('=');
      if (equals != 0 && equals != std::string::npos)
        config["env"][text.substr(0, equals)] = text.substr(equals + 1);
    }
    config["env"].update(env);
    config["way"] = "transparent";
    config["preload"] = SHIM;
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  // Waits until the program's buffers exist.
  void wait_until_ready(Agent& agent, const char* word = "ready\n") {
    agent.wait_for_phase(Phase::kRunning);
    while (text_of(root_ + "/job/out.log").find(word) == std::string::npos && !HasFailure()) status(agent);
  }
  [[nodiscard]] std::string stop_file() const { return root_ + "/stop"; }
  static local::Status status(Agent& agent) { return agent.ask<local::Status>(local::Attach{}); }

  // Acts like a mover: receives batches and releases freed regions until a T arrives.
  template <class T>
  T follow_until(Agent& agent) {
    for (;;) {
      if (!wait_readable(agent.socket().fd())) {
        ADD_FAILURE() << "nothing came";
        return {};
      }
      Result<local::Received> received = agent.socket().receive();
      if (!received.has_value() || received->transfer != local::Transfer::kDone) {
        ADD_FAILURE() << "the connection ended";
        return {};
      }
      local::Body& body = received->message.body;
      if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
        for (std::size_t i = 0; i < batch->records.size(); ++i) {
          held_[batch->records[i].id] = {batch->records[i], std::move(received->descriptors[i])};
        }
        agent.send(local::ExportAck{batch->sequence});
      } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
        EXPECT_EQ(held_.erase(freed->id), 1u) << "a region that nobody was given";
        agent.send(local::RegionFreedAck{freed->id, freed->generation});
      }
      descriptors_ = std::move(received->descriptors);
      if (T* wanted = std::get_if<T>(&body)) return *wanted;
      if (const auto* failed = std::get_if<local::Failed>(&body)) {
        ADD_FAILURE() << failed->text.view();
        return {};
      }
    }
  }

  void pause_and_release(Agent& agent) {
    held_.clear();
    wait_until_ready(agent);
    agent.send(local::Export{});
    follow_until<local::ExportEnd>(agent);
    agent.send(local::Pause{});
    const auto paused = follow_until<local::Paused>(agent);
    EXPECT_LE(paused.barrier_entry_ns, paused.quiesced_ns);
    agent.send(local::Release{});
    follow_until<local::Released>(agent);
    EXPECT_EQ(status(agent).exported_regions, held_.size());
  }

  // Waits for the end of the program. Collects the requests that were refused for this reason.
  static int wait_status_after(Agent& agent, std::set<std::uint32_t>& refused) {
    for (;;) {
      if (!wait_readable(agent.socket().fd())) return -1;
      const Result<local::Received> received = agent.socket().receive();
      if (!received.has_value()) return -1;
      const local::Body& body = received->message.body;
      if (const auto* failed = std::get_if<local::Failed>(&body)) refused.insert(failed->refused_type);
      if (const auto* exited = std::get_if<local::RankExited>(&body)) return exited->wait_status;
    }
  }

  void resume(Agent& agent, std::uint64_t incarnation) {
    EXPECT_EQ(agent.ask<local::Running>(local::Resume{incarnation, 0, 0}).was_paused, 1u);
    agent.ask<local::Done>(local::StopExport{});
  }

  // Makes the program exit and expects success. The program checks every byte that it reads.
  void expect_good_end(Agent& agent, const std::string& folder) {
    std::ofstream(stop_file()) << "now";
    EXPECT_EQ(agent.next<local::RankExited>().wait_status, 0) << text_of(folder + "/out.log");
    EXPECT_NE(text_of(folder + "/out.log").find(" steps\n"), std::string::npos);
  }

  std::map<std::uint64_t, Held> held_;
  std::vector<UniqueFd> descriptors_;
};

TEST_F(ShimRankTest, MemoryIsDescribedAsRegions) {
  const std::string folder = start_program();
  Agent agent(folder);
  wait_until_ready(agent);
  EXPECT_EQ(status(agent).session_pid, status(agent).rank_pid);
  const auto summary = agent.ask<local::DescribeEnd>(local::Describe{}).summary;
  EXPECT_EQ(summary.movable, 1u) << summary.reason.view();
  EXPECT_EQ(summary.tensors, summary.regions);
  EXPECT_EQ(summary.state_bytes, summary.region_bytes);
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, MemoryIsRemappedFromTheKeeper) {
  const std::string folder = start_program();
  Agent agent(folder);
  for (std::uint64_t round = 1; round <= 5; ++round) {
    pause_and_release(agent);
    held_.clear();  // only the keeper still holds the memory
    agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
    resume(agent, round + 1);
  }
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, ArrivedMemoryIsMapped) {
  const std::string folder = start_program();
  Agent agent(folder);
  pause_and_release(agent);
  local::Deposit deposit{1, 9, {}};
  std::vector<int> numbers;
  ASSERT_LE(held_.size(), local::kMaxRecords);
  for (const auto& [id, region] : held_) {
    deposit.records.push_back(region.record);
    numbers.push_back(region.descriptor.get());
  }
  ASSERT_TRUE(agent.socket().send({0, 500, deposit}, numbers).has_value());
  agent.next<local::Done>();
  held_.clear();
  local::Map map{.set = MemorySet::kArrived, .gpu_count = 1, .migration = 9};
  map.gpus[0] = {.uuid = {7, 7, 7}, .pci_bus = 9};
  agent.ask<local::Mapped>(map);
  resume(agent, 2);
  agent.ask<local::Done>(local::Withdraw{9});
  const auto regions = agent.ask<local::Regions>(local::Describe{});
  ASSERT_FALSE(regions.records.empty());
  EXPECT_EQ(regions.records[0].device_uuid, map.gpus[0].uuid) << "it is on another GPU now";
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, RankAllocatesMemoryAndAMoverFillsTheMemory) {
  const std::string folder = start_program();
  Agent agent(folder);
  pause_and_release(agent);
  local::Make order{3, {}};
  for (const auto& [id, region] : held_) order.records.push_back({id, region.record.generation});
  agent.send(order);
  const auto made = follow_until<local::Made>(agent);
  ASSERT_EQ(made.records.size(), held_.size());
  for (std::size_t i = 0; i < made.records.size(); ++i) {
    const std::size_t bytes = made.records[i].bytes;
    const int from = held_.at(made.records[i].id).descriptor.get();
    void* source = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, from, 0);
    void* target = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors_[i].get(), 0);
    ASSERT_TRUE(source != MAP_FAILED && target != MAP_FAILED);
    std::memcpy(target, source, bytes);
    ::munmap(source, bytes);
    ::munmap(target, bytes);
  }
  held_.clear();
  agent.ask<local::Mapped>(local::Map{});
  resume(agent, 2);
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, ProcessThatOnlyInitializesTheDriverIsNotARank) {
  const std::string folder = start_program({"beside"});
  Agent agent(folder);
  wait_until_ready(agent);
  wait_until_ready(agent, "asked\n");
  const auto summary = agent.ask<local::DescribeEnd>(local::Describe{}).summary;
  EXPECT_EQ(summary.movable, 1u) << summary.reason.view();
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, ProgramUnderAProfilerCannotBeMoved) {
  const std::string folder = start_program({}, {{"CUDA_INJECTION64_PATH", "/nonexistent.so"}});
  Agent agent(folder);
  wait_until_ready(agent);
  const auto summary = agent.ask<local::DescribeEnd>(local::Describe{}).summary;
  EXPECT_EQ(summary.movable, 0u);
  EXPECT_NE(summary.reason.view().find("profiler"), std::string_view::npos) << summary.reason.view();
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, MapWithoutItsMemoryIsRefusedAndALaterMapSucceeds) {
  const std::string folder = start_program();
  Agent agent(folder);
  pause_and_release(agent);
  EXPECT_NE(refusal_of(agent, local::Map{}).text.view().find("Not all regions"), std::string_view::npos);
  EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  resume(agent, 2);
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, RankReleasesNoMemoryThatTheKeeperLacks) {
  const std::string folder = start_program();
  Agent agent(folder);
  wait_until_ready(agent);
  agent.ask<local::Paused>(local::Pause{});
  EXPECT_NE(refusal_of(agent, local::Release{}).text.view().find("before its memory is released"),
            std::string_view::npos);
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, RankLeavesNoDriverStateForADumpAndReconnects) {
  const std::string folder = start_program();
  Agent agent(folder);
  pause_and_release(agent);
  held_.clear();
  const std::string proc = "/proc/" + std::to_string(status(agent).rank_pid);
  agent.ask<local::DumpReady>(local::PrepareDump{});
  EXPECT_EQ(text_of(proc + "/maps").find("ckpt-control"), std::string::npos);
  for (const auto& entry : fs::directory_iterator(proc + "/fd")) {
    EXPECT_EQ(fs::read_symlink(entry.path()).string().find("eventfd"), std::string::npos);
  }
  agent.ask<local::Done>(local::Reattach{});
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  resume(agent, 2);
  pause_and_release(agent);
  agent.ask<local::Mapped>(local::Map{.set = MemorySet::kExported});
  resume(agent, 3);
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, PauseThatTimesOutReportsTheCallAndTheJobContinues) {
  const std::string gate = root_ + "/go";
  const std::string folder = start_program({gate}, {{"GPUMIGRATE_PAUSE_TIMEOUT_MS", "30"}});
  Agent agent(folder);
  wait_until_ready(agent, "stuck\n");
  const local::Failed failed = refusal_of(agent, local::Pause{});
  EXPECT_EQ(failed.code, static_cast<std::uint32_t>(ErrorCode::kTimedOut)) << failed.text.view();
  std::ofstream(gate) << "now";
  EXPECT_EQ(status(agent).phase, Phase::kRunning);
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, JobRunsAfterWithdrawnPausesAndExpiredLeases) {
  const std::string folder = start_program();
  Agent agent(folder);
  wait_until_ready(agent);
  for (int i = 0; i < 20; ++i) {
    agent.send(local::Pause{});
    agent.ask<local::Running>(local::Resume{1, 0, 0});
    agent.ask<local::Done>(local::SetDeadline{1});
    agent.ask<local::Done>(local::SetDeadline{local::kNoDeadline});
  }
  agent.ask<local::Paused>(local::Pause{});
  agent.ask<local::Running>(local::Resume{2, 0, 0});
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, PausedRankWithoutALeaseContinuesWhenTheLeaseIsRenewed) {
  const std::string folder = start_program();
  Agent agent(folder);
  wait_until_ready(agent);
  agent.ask<local::Paused>(local::Pause{});
  agent.send(local::Resume{2, 1, 0});  // the lease has already expired
  agent.next<local::RankStopped>();
  agent.send(local::SetDeadline{local::kNoDeadline});
  agent.next<local::Running>();
  expect_good_end(agent, folder);
}

TEST_F(ShimRankTest, CrashPointAfterAReleaseOrARemapKillsTheRank) {
  for (const char* point : {"507", "508"}) {
    const std::string armed = root_ + "/rank.j-1.fresh." + point;
    std::ofstream(armed) << "kill";
    const std::string folder = start_program({}, {{"CKPT_FAULT_DIR", root_}});
    Agent agent(folder);
    wait_until_ready(agent);
    agent.send(local::Export{});
    follow_until<local::ExportEnd>(agent);
    agent.send(local::Pause{});
    follow_until<local::Paused>(agent);
    agent.send(local::Release{});
    if (std::string(point) == "508") {
      follow_until<local::Released>(agent);
      agent.send(local::Map{.set = MemorySet::kExported});
    }
    std::set<std::uint32_t> refused;
    EXPECT_EQ(WTERMSIG(wait_status_after(agent, refused)), SIGKILL);
    const auto asked = std::string(point) == "507" ? local::MessageType::kRelease : local::MessageType::kMap;
    EXPECT_TRUE(refused.contains(static_cast<std::uint32_t>(asked)));
    EXPECT_FALSE(fs::exists(armed));
    agent.ask<local::Done>(local::Shutdown{});
    EXPECT_TRUE(Watch(keepers_.back()).ended());
    held_.clear();
    fs::remove_all(folder);
  }
}

TEST_F(ShimRankTest, KillingTheKeeperKillsTheRank) {
  const std::string folder = start_program();
  Agent agent(folder);
  pause_and_release(agent);
  const Watch rank(static_cast<pid_t>(status(agent).rank_pid));
  ::kill(keepers_.back(), SIGKILL);
  EXPECT_TRUE(rank.ended());
}

}  // namespace
}  // namespace ckpt::keeper
