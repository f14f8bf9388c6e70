// SPDX-License-Identifier: Apache-2.0
// The settings that are read from the environment (README.md has the list).
//
// Threads: any. Read again at each call, except for the host's identity, which NCCL, too, reads once.
#pragma once

#include <cstdint>
#include <string>

namespace ncclsim {

// A number of the environment, or `otherwise` if it is unset or no number.
std::int64_t number_of(const char* variable, std::int64_t otherwise);
std::string text_of(const char* variable);

// NCCL_HOSTID, or else the host's name and boot: equal for the ranks of one host.
std::uint64_t host_hash();
// The ranks' connections are made at the first use, unless NCCL_RUNTIME_CONNECT=0.
bool connects_at_first_use();
// Device memory that each communicator holds (NCCLSIM_DEVICE_MEMORY).
std::uint64_t memory_of_communicator();
// Ranks of one host export memory to each other and keep the imports (NCCLSIM_IMPORTS).
bool keeps_imports();
// The deadline of exchanges that no abort can end, in ms (NCCLSIM_TIMEOUT_MS).
std::int64_t timeout_ms();

}  // namespace ncclsim
