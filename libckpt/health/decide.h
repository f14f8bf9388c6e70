// SPDX-License-Identifier: Apache-2.0
// The decision about each process of a GPU in trouble: none, live or restore (docs/adr/0008). The driver's
// recovery action comes first, then the table's rows of the Xids that were seen together. The facts of the
// process come last. Pure: the same evidence gives the same decision.
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
// Threads: pure. Errors: none: missing evidence is named in the reason and decided carefully.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/health/nvlink5.h"
#include "libckpt/health/table.h"

namespace ckpt::health {

// Whether a process's context works, as the job reports.
enum class Probe : std::uint8_t { kUnknown, kAlive, kDead };

// The result of a test of the GPU, in a context that is made only for the test.
enum class GpuProbe : std::uint8_t { kNotTried, kPassed, kFailed, kHung };
[[nodiscard]] std::string_view to_string(GpuProbe probe) noexcept;

struct ProcessFacts {
  std::int32_t pid = 0;
  Probe probe = Probe::kUnknown;
  std::optional<bool> uses_p2p;
};

struct SeenXid {
  std::uint32_t xid = 0;
  std::int32_t victim = 0;  // a pid of `processes`; 0: the driver did not report it, or it is none of them
  std::optional<std::uint32_t> recovery;  // the recovery action in it: Xid 154, RST, D-RST
  std::optional<LinkVerdict> link;        // 144-150
  std::string suspicion;                  // History::suspicion
};

struct GpuFacts {
  bool lost = false;                      // reported by the driver or the kernel log
  bool gone = false;                      // the driver does not list it any more
  bool silent = false;                    // NVML does not answer
  std::optional<std::uint32_t> recovery;  // field 230
  bool remap_pending = false;             // newly: rows of memory will be replaced at the next reset
  bool remap_failed = false;
  std::uint64_t uncorrected = 0;  // new errors of memory that were not corrected
  GpuProbe probe = GpuProbe::kNotTried;
  std::string probe_detail;             // its output
  std::optional<bool> contains_errors;  // contains_memory_errors() of its model
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
  Outcome outcome = Outcome::kNone;  // for a process that is not named
  bool cordon = false;               // nothing new on this GPU
  bool urgent = false;               // false: when there is capacity and time
  bool leave_node = false;           // the host is suspect, or must be restarted
  std::uint32_t xid = 0;             // the one that decided; 0: none did
  std::uint32_t recovery = 0;        // the recovery action it went by
  std::string reason;                // one line
  std::vector<ProcessVerdict> processes;
};

[[nodiscard]] Decision decide(const XidTable& table, const Evidence& evidence);

// Something speaks against the GPU and nothing decides: whether it still works is worth a context on it. Not
// for what is a program's own matter.
[[nodiscard]] bool wants_probe(const XidTable& table, const Evidence& evidence, const Decision& decision);

// A line of the kernel log as evidence; the caller fills in victim and suspicion.
[[nodiscard]] SeenXid seen_of(const XidTable& table, const XidLine& line);

// Whether GPUs of this model keep an uncorrectable memory error to the process that read it: GA100, GH100 and
// GB10x do, others known here do not; nullopt: not known.
[[nodiscard]] std::optional<bool> contains_memory_errors(const std::string& model);

}  // namespace ckpt::health
