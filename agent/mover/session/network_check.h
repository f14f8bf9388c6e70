// SPDX-License-Identifier: Apache-2.0
// A session without memory, which tests whether this mover and another can reach each other over a network.
// It uses one lane with the session's token on a separate thread, and transfers no data. The source's side
// sends PeerReached when the lane is open. The target's side sends it when the peer has left again. A lane
// that is closed earlier is a failure. The thread stops with its session, or after kMaxLife.
// Threads: the mover's thread makes all calls. Errors: SessionFailed with the lane's error.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "agent/mover/session/session.h"

namespace ckpt::mover {

class NetworkCheck final : public Session {
 public:
  NetworkCheck(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open, const SessionSecrets& secrets);
  ~NetworkCheck() override;

  bool handle(messages::Packet& packet) override;

 private:
  class End;
  enum class Side : std::uint8_t { kListens, kReaches };
  void release(std::uint64_t /*region*/) override {}
  void attached() override {}
  Result<void> listen();
  Result<void> reach(const messages::ReachPeer& request);
  Result<void> begin(Side side);
  void drive();

  std::unique_ptr<End> end_;
  std::unique_ptr<transport::Lane> lane_;  // used by the check's thread alone while that thread runs
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace ckpt::mover
