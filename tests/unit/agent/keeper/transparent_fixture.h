// SPDX-License-Identifier: Apache-2.0
// The keeper of a transparent job, with a rank whose device memory is memory files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/agent/keeper/harness.h"

namespace ckpt::keeper {

using local::MemorySet;
using local::MemoryState;

inline constexpr std::uint64_t kBytes = 4096;

inline UniqueFd file_with(const std::string& text) {
  UniqueFd fd(::memfd_create("arrived", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
  EXPECT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

class TransparentTest : public KeeperTest {
 protected:
  TransparentTest() { ::setenv("CKPT_FAULT_DIR", root_.c_str(), 1); }
  ~TransparentTest() override { ::unsetenv("CKPT_FAULT_DIR"); }

  Json transparent(const std::vector<std::string>& arguments = {}) {
    Json config = this->config(arguments);
    config["argv"][0] = FAKE_RANK;
    config["way"] = "transparent";
    return config;
  }
  std::string start_transparent(const std::vector<std::string>& arguments = {}) {
    const std::string folder = root_ + "/job";
    EXPECT_EQ(launch(folder, transparent(arguments)), 0) << text_of(folder + "/said");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }
  static local::Status status(Agent& agent) { return agent.ask<local::Status>(local::Attach{}); }

  // Takes every batch of an export. The received descriptors are closed at once.
  static std::size_t export_all(Agent& agent) {
    std::size_t regions = 0;
    agent.send(local::Export{});
    for (;;) {
      if (!wait_readable(agent.socket().fd())) return 0;
      Result<local::Received> received = agent.socket().receive();
      if (!received.has_value()) return 0;
      const local::Body& body = received->message.body;
      if (std::holds_alternative<local::ExportEnd>(body)) return regions;
      const auto* batch = std::get_if<local::ExportBatch>(&body);
      if (batch == nullptr) continue;
      regions += batch->records.size();
      agent.send(local::ExportAck{batch->sequence});
    }
  }
  static void pause_and_release(Agent& agent) {
    agent.wait_for_phase(Phase::kRunning);
    export_all(agent);
    EXPECT_EQ(agent.ask<local::Paused>(local::Pause{}).host_state_bytes, 0u);
    agent.ask<local::Released>(local::Release{});
    EXPECT_EQ(status(agent).memory, MemoryState::kReleased);
  }
  static void deposit(Agent& agent, std::uint64_t migration, const std::string& text) {
    local::Deposit deposit{1, migration, {}};
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      deposit.records.push_back({id, 1, kBytes, {}});
      files.push_back(file_with(text + " " + std::to_string(id)));
      numbers.push_back(files.back().get());
    }
    ASSERT_TRUE(agent.socket().send({0, 1000 + migration, deposit}, numbers).has_value());
    agent.next<local::Done>();
  }
};

}  // namespace ckpt::keeper
