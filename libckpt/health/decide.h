// SPDX-License-Identifier: Apache-2.0
// The decision about each process of a GPU in trouble: none, live or restore (docs/adr/0008). The driver's
// recovery action comes first. The table's rows of the Xids that occurred together come second, and the facts
// of the process last. The decision is pure: the same evidence gives the same decision.
//
//   gone, lost, silent with an Xid, reset, reboot   restore everything; reboot: on another node
//   drain and reset                           live, restore where the context is lost
//   drain peer to peer                        the same, restore also what uses peer to peer
//   none, not known                           the rows of the table, the strongest for each process
//   and no row asks for anything              new uncorrected errors of memory: live, when a GPU is free;
//                                             restore where the context is lost
//   and there are none                        the probe of the GPU: hung: restore; failed: live, restore
//                                             where the context is lost
//
// Threads: pure functions. Errors: none. Missing evidence is named in the reason, and the decision is then
// conservative.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/health/nvlink5.h"
#include "libckpt/health/table.h"

namespace ckpt::health {

// The state of a process's context, as the job reports it.
enum class Probe : std::uint8_t { kUnknown, kAlive, kDead };

// The result of a test of the GPU, in a context that is created only for the test.
enum class GpuProbe : std::uint8_t { kNotTried, kPassed, kFailed, kHung };
[[nodiscard]] std::string_view to_string(GpuProbe probe) noexcept;

struct ProcessFacts {
  std::int32_t pid = 0;
  Probe probe = Probe::kUnknown;
  std::optional<bool> uses_p2p;
};

struct SeenXid {
  std::uint32_t xid = 0;
  std::int32_t victim = 0;  // a pid of `processes`; 0 if the driver reported none; -1 for a process
                            // that is not in `processes`
  std::optional<std::uint32_t> recovery;  // the recovery action in the line: Xid 154, RST, D-RST
  std::optional<LinkVerdict> link;        // the verdict about the link; set for Xids 144-150
  std::string suspicion;                  // the suspicion, as History::suspicion returns it
};

struct GpuFacts {
  bool lost = false;                      // whether the driver or the kernel log reported the GPU as lost
  bool gone = false;                      // whether the driver no longer lists the GPU
  bool silent = false;                    // whether NVML does not answer
  std::optional<std::uint32_t> recovery;  // the recovery action (NVML field 230)
  bool remap_pending = false;             // whether it is a new state that rows of memory will be replaced at
                                          // the next reset
  bool remap_failed = false;
  std::uint64_t uncorrected = 0;  // the number of new uncorrected memory errors
  GpuProbe probe = GpuProbe::kNotTried;
  std::string probe_detail;             // the text that the probe printed
  std::optional<bool> contains_errors;  // whether GPUs of this model contain memory errors
                                        // (contains_memory_errors())
};

struct Evidence {
  GpuFacts gpu;
  std::vector<SeenXid> xids;
  std::vector<ProcessFacts> processes;
};

struct ProcessVerdict {
  std::int32_t pid = 0;
  Outcome outcome = Outcome::kNone;
  std::string reason;
};

struct Decision {
  Outcome outcome = Outcome::kNone;  // the outcome for every process that `processes` does not name
  bool cordon = false;               // whether no new job may be started on this GPU
  bool urgent = false;         // whether to act at once; if false, act when capacity and time are available
  bool leave_node = false;     // whether processes must leave the node, because the host is suspect or must
                               // be rebooted
  std::uint32_t xid = 0;       // the Xid that decided; 0 if none did
  std::uint32_t recovery = 0;  // the recovery action that the decision used
  std::string reason;          // the reason, as one line for people
  std::vector<ProcessVerdict> processes;
};

[[nodiscard]] Decision decide(const XidTable& table, const Evidence& evidence);

// Returns whether a probe is worth a context on the GPU: something indicates a fault, but nothing decides.
// Returns false for faults of the program itself.
[[nodiscard]] bool wants_probe(const XidTable& table, const Evidence& evidence, const Decision& decision);

// Converts a line of the kernel log into evidence. The caller fills in victim and suspicion.
[[nodiscard]] SeenXid seen_of(const XidTable& table, const XidLine& line);

// Returns whether GPUs of this model limit an uncorrectable memory error to the process that read it. GA100,
// GH100 and GB10x do; other known models do not. Returns nullopt for an unknown model.
[[nodiscard]] std::optional<bool> contains_memory_errors(const std::string& model);

}  // namespace ckpt::health
