// SPDX-License-Identifier: Apache-2.0
// A sender in this process and a receiver in a second process, each with a CUDA context and UCX, like two
// movers. There is no agent and no job. The source's memory is one region that the caller fills. The target's
// memory is allocated once, and every session writes it.
//
//   CKPT_TRY(pair, EnginePair::create(options.program, bytes));
//   pair->memory().fill_random(1);
//   CKPT_TRY(session, pair->begin({.bandwidth = limit}));     // connected, plan accepted
//   CKPT_TRY(run, session->round());                          // as often as wanted
//   CKPT_TRYV(session->verify());                             // final round and commit: the roots are equal
//   CKPT_TRYV(session->end());                                // closes both sides
//   CKPT_TRYV(pair->finish());
//
// Threads: one. One session at a time; it must end before the pair does. Errors: those of the engine, the
// driver and the second process.
#pragma once

#include <memory>

#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/transport/transport.h"
#include "tools/bench/measuring/child.h"
#include "tools/bench/measuring/device_buffer.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {

struct SessionSetup {
  bool same_host = true;  // true: as between GPUs of one node; false: as between nodes, over TCP
  std::uint64_t bandwidth = 0;
  codec::CodecMode codec = codec::CodecMode::kRaw;
  std::uint64_t shadow_memory_bytes = 0;
};

struct RoundRun {
  engine::RoundReport report;
  Nanos wall = 0;
  Nanos cpu = 0;  // processor time of both processes and both devices
};

class EnginePair;

class EngineSession {
 public:
  ~EngineSession();
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;
  Result<RoundRun> round();
  // Returns whether payloads are read from this process's memory, as within a machine. Otherwise they are
  // sent over UCX.
  [[nodiscard]] bool same_host() const {
    return sender_->same_host_lanes(transport::PayloadAccess::kReads) > 0;
  }
  // Makes the target scan its memory ahead of the pause, as in a move.
  Result<void> verify_ahead();
  // Runs the final round and the commit.
  Result<engine::RoundReport> verify();
  Result<void> end();

 private:
  friend class EnginePair;
  explicit EngineSession(EnginePair& pair) : pair_(pair) {}
  EnginePair& pair_;
  std::unique_ptr<engine::Sender> sender_;
};

class EnginePair {
 public:
  static Result<std::unique_ptr<EnginePair>> create(const std::string& program, std::uint64_t bytes);
  Result<std::unique_ptr<EngineSession>> begin(const SessionSetup& setup);
  [[nodiscard]] DeviceBuffer& memory() { return *memory_; }
  Result<void> finish();

 private:
  friend class EngineSession;
  explicit EnginePair(Device device) : device_(std::move(device)) {}
  Device device_;
  std::unique_ptr<engine::StagingPool> staging_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::unique_ptr<Child> target_;
  std::optional<CpuMeter> meter_;
};

}  // namespace ckpt::bench
