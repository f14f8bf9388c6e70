// SPDX-License-Identifier: Apache-2.0
// The facts about its GPUs' health that an agent needs after a restart. They are stored in the file "health"
// in the agent's home. Each write is atomic. A finding, its cause and the position up to which the kernel log
// was read become durable together. Therefore no event is handled twice, and none is missed.
// Threads: plain values. Errors: kIo, kCorrupt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/health_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

// The last known state of a GPU. A change for the worse triggers a check. A bad state that does not change
// triggers none.
struct KnownGpu {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::string uuid;
  std::string bus_id;  // PCI address, which identifies the GPU in lines of the kernel log even while NVML is
                       // silent
  std::string model;
  std::uint32_t index = 0;  // number of the GPU on this node
  bool recovery_known = false;
  std::uint32_t recovery = 0;
  bool lost = false;
  bool silent = false;
  bool remap_pending = false;
  bool remap_failed = false;
  bool gone = false;       // true if the inventory no longer lists the GPU
  bool replaced = false;   // true if another card now has the GPU's address or number
  std::uint8_t probe = 0;  // health::GpuProbe: the result of the last probe
  wire::GpuErrors errors;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(uuid, bus_id, model, index, recovery_known, recovery, lost, silent, remap_pending, remap_failed,
             gone, replaced, probe, errors);
  }
};

// An observed event for which no decision has been made yet.
struct SeenEvent {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::string gpu;  // UUID of the GPU
  std::string source;
  std::uint32_t xid = 0;  // Xid of the event; 0 if the event is a state, or a line without an Xid
  std::int32_t pid = 0;
  wire::JobId job = 0;  // job of the event's process; 0 if there is none, or if it was not reported
  wire::Incarnation incarnation = 0;
  bool has_recovery = false;
  std::uint32_t recovery = 0;
  bool lost = false;
  std::string line;               // line of the kernel log with an Xid, or a probe's output
  std::uint8_t probe = 0;         // health::GpuProbe, for an event from source "probe"
  bool remembered = false;        // true if the event is in `past`
  std::uint64_t uncorrected = 0;  // number of new uncorrected memory errors
  template <class A>
  decltype(auto) fields(A& a) {
    return a(gpu, source, xid, pid, job, incarnation, has_recovery, recovery, lost, line, probe, remembered,
             uncorrected);
  }
};

// A job that was on a GPU when the first of the GPU's events arrived. If the job fails before the decision,
// it still counts, as a dead job.
struct Bystander {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string gpu;
  wire::JobId job = 0;
  wire::Incarnation incarnation = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(gpu, job, incarnation);
  }
};

struct PastXid {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::int64_t time_ms = 0;
  std::string gpu;
  std::uint32_t xid = 0;
  std::uint64_t job = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(time_ms, gpu, xid, job);
  }
};

struct HealthRecord {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string boot_id;  // boot id of the kernel log; empty if no kernel log was read yet
  std::uint64_t sequence = 0;
  std::uint64_t next_number = 1;
  std::vector<wire::HealthFinding> findings;  // findings that the coordinator has not acknowledged
  std::vector<KnownGpu> gpus;
  std::vector<SeenEvent> seen;
  std::vector<Bystander> bystanders;
  std::vector<PastXid> past;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(boot_id, sequence, next_number, findings, gpus, seen, bystanders, past);
  }
};

[[nodiscard]] std::vector<std::byte> encode_health(const HealthRecord& record);
[[nodiscard]] Result<HealthRecord> decode_health(std::span<const std::byte> bytes);

// Loads the record. A missing file yields an empty record. A damaged file is renamed to "health.damaged". The
// numbers of findings then continue far above all numbers that were used before.
[[nodiscard]] Result<HealthRecord> load_health(const std::string& path);
[[nodiscard]] Result<void> save_health(const std::string& path, std::span<const std::byte> bytes);

}  // namespace ckpt::agent
