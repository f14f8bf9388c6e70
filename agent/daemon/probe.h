// SPDX-License-Identifier: Apache-2.0
// gpumigrate-agent --probe: reports as facts which requirements of moves this node meets. `gpumigrate doctor`
// draws the conclusions. `gpumigrate-mover --probe` probes the driver and UCX, CRIU's own check probes CRIU,
// and this module probes the kernel. The probe changes nothing on the node.
// Threads: one, before any other thread is started. Errors: kIo if there is no space for temporary files. All
// other errors are part of the answer, as "problem".
//
//   {"node":   {"name", "kernel", "root"},
//    "driver": {"loaded", "version", "checkpoint", "change_gpu",
//               "devices": [{"name", "bytes", "virtual_memory", "descriptors", "direct_rdma"}],
//               "problem", "module": version of NVIDIA's kernel module},
//    "remap":  {"import", "own", "import_moved", "own_moved", "problem"} (remap.h),
//    "ucx":    {"version", "components": [..], "transports": ["tcp/eth0", ..], "problem"},
//    "criu":   {"program", "version", "works", "restores_lazily", "problem",
//               "moves": whether it has saved and restored a small process here (missing: not tried)},
//    "kernel": {"write_tracking", "pid_namespaces", "pid_namespaces_problem", "descriptors",
//               "memory_files", "memory_folder", "memory_folder_bytes", "memory_folder_free_bytes",
//               "tls", "tls_module"},
//    "rdma":   [name of device, ..]}
// A fact that could not be determined is null or missing.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent {

struct ProbeSettings {
  std::string mover_program;             // path of the mover; empty means next to this program
  std::string context_program;           // path of the program; empty means next to this program
  std::string agent_program;             // path of the program; empty means next to this program
  std::string home;                      // folder of the agent that reads the results; empty if there is none
  std::vector<std::string> environment;  // environment of the agent's jobs, for trials with similar processes
  std::string criu;                      // path of CRIU; empty means that the probe searches for it
  std::chrono::milliseconds mover_timeout{60000};  // time limit of the mover; a mover's first cuInit takes
                                                   // seconds
};

Result<nlohmann::ordered_json> probe_node(ProbeSettings settings);

// Returns the facts that are found without running another program.
nlohmann::ordered_json kernel_facts();
// Merges the JSON lines that the mover printed. Its other output is ignored.
nlohmann::ordered_json merge_mover_output(const std::string& output);

}  // namespace ckpt::agent
