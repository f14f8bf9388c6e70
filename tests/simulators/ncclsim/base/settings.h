// SPDX-License-Identifier: Apache-2.0
// The settings that are read from the environment (README.md has the list).
//
// Threads: any. Settings are read again at each call, except for the host's identity, which NCCL also reads
// once.
#pragma once

#include <cstdint>
#include <string>

namespace ncclsim {

// Returns a number from the environment, or `otherwise` if the variable is unset or not a number.
std::int64_t number_of(const char* variable, std::int64_t otherwise);
std::string text_of(const char* variable);

// Returns a hash of NCCL_HOSTID, or else of the host's name and boot. The hash is equal for the ranks of one
// host.
std::uint64_t host_hash();
// Returns whether the ranks connect at the first use, which is the case unless NCCL_RUNTIME_CONNECT=0.
bool connects_at_first_use();
// Returns the bytes of device memory that each communicator holds (NCCLSIM_DEVICE_MEMORY).
std::uint64_t memory_of_communicator();
// Returns whether ranks of one host export memory to each other and retain the imports (NCCLSIM_IMPORTS).
bool keeps_imports();
// Returns the deadline in ms of exchanges that no abort can end (NCCLSIM_TIMEOUT_MS).
std::int64_t timeout_ms();

}  // namespace ncclsim
