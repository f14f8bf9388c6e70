// SPDX-License-Identifier: Apache-2.0
// A session without memory, which tries whether this mover and another reach each other over a network. One
// lane with the session's token, on a thread of its own; it carries nothing. PeerReached comes from the
// source's side when the lane is open, from the target's when its peer has left again. A lane that ends
// before is a failure. A thread ends with its session, or after kMaxLife.
// Threads: the mover's for all calls. Errors: SessionFailed with the lane's.
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
  void let_go(std::uint64_t /*region*/) override {}
  void attached() override {}
  Result<void> listen();
  Result<void> reach(const messages::ReachPeer& request);
  Result<void> begin(Side side);
  void drive();

  std::unique_ptr<End> end_;
  std::unique_ptr<transport::Lane> lane_;  // belongs to the thread once that runs
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace ckpt::mover
