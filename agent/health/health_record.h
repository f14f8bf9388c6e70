// SPDX-License-Identifier: Apache-2.0
// The facts about its GPUs' health that an agent needs after a restart: the file "health" in its home. One
// write is one step. A finding, its cause and the place up to which the kernel log was read are durable
// together. So nothing is acted on twice and nothing is missed.
// Threads: values. Errors: kIo, kCorrupt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/health_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

// The last known state of a GPU. A change for the worse is a reason to look; the state itself is not.
struct KnownGpu {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::string uuid;
  std::string bus_id;  // identifies the GPU in lines of the kernel log, also while NVML is silent
  std::string model;
  std::uint32_t index = 0;  // this node's number
  bool recovery_known = false;
  std::uint32_t recovery = 0;
  bool lost = false;
  bool silent = false;
  bool remap_pending = false;
  bool remap_failed = false;
  bool gone = false;       // the inventory does not list it any more
  bool replaced = false;   // and another card has its address or its number
  std::uint8_t probe = 0;  // health::GpuProbe: how the last one went
  wire::GpuErrors errors;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(uuid, bus_id, model, index, recovery_known, recovery, lost, silent, remap_pending, remap_failed,
             gone, replaced, probe, errors);
  }
};

// An event that was seen and is not yet decided on.
struct SeenEvent {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::string gpu;  // UUID
  std::string source;
  std::uint32_t xid = 0;  // 0: a state, or a line without a number
  std::int32_t pid = 0;
  wire::JobId job = 0;  // the process's job; 0: none, or not reported
  wire::Incarnation incarnation = 0;
  bool has_recovery = false;
  std::uint32_t recovery = 0;
  bool lost = false;
  std::string line;               // of the kernel log, with an Xid; a probe's output
  std::uint8_t probe = 0;         // health::GpuProbe, of source "probe"
  bool remembered = false;        // in `past`
  std::uint64_t uncorrected = 0;  // new errors of memory that were not corrected
  template <class A>
  decltype(auto) fields(A& a) {
    return a(gpu, source, xid, pid, job, incarnation, has_recovery, recovery, lost, line, probe, remembered,
             uncorrected);
  }
};

// A job on a GPU when the first of its events came: one that ends badly before the decision counts as dead.
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
  std::string boot_id;  // empty: no kernel log has been read yet
  std::uint64_t sequence = 0;
  std::uint64_t next_number = 1;
  std::vector<wire::HealthFinding> findings;  // not acknowledged
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

// A file that is not there is an empty record. A damaged one is set aside as "health.damaged"; the numbers
// then go on far above any that was given before.
[[nodiscard]] Result<HealthRecord> load_health(const std::string& path);
[[nodiscard]] Result<void> save_health(const std::string& path, std::span<const std::byte> bytes);

}  // namespace ckpt::agent
