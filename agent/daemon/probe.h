// SPDX-License-Identifier: Apache-2.0
// gpumigrate-agent --probe: which requirements of moves this node meets, as facts; `gpumigrate doctor` draws
// the conclusions. The driver and UCX are probed by `gpumigrate-mover --probe`, CRIU by its own check, the
// kernel here. Nothing of the node is changed.
// Threads: one, before any other is started. Errors: kIo if there is no space for temporary files; all else
// is a part of the answer, as "problem".
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
// A fact that could not be found is null or missing.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent {

struct ProbeSettings {
  std::string mover_program;             // empty: beside this program
  std::string context_program;           // the same
  std::string agent_program;             // the same
  std::string home;                      // of the agent that reads the results there; empty: of none
  std::vector<std::string> environment;  // of its jobs, for trials with processes like theirs
  std::string criu;                      // empty: it is looked for
  std::chrono::milliseconds mover_timeout{60000};  // a first cuInit takes seconds
};

Result<nlohmann::ordered_json> probe_node(ProbeSettings settings);

// The parts that need no other program.
nlohmann::ordered_json kernel_facts();
// Lines of JSON objects that the mover printed, merged; its other output is left out.
nlohmann::ordered_json merge_mover_output(const std::string& output);

}  // namespace ckpt::agent
