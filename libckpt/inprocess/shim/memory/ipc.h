// SPDX-License-Identifier: Apache-2.0
// Legacy CUDA IPC (cuIpcGetMemHandle), which the driver does not offer for virtual memory. The handle names a
// socket of the process that has the memory. Another process of the same user fetches a descriptor from that
// socket. Shared memory does not move.
// Threads: any; the first handle starts one thread with all signals blocked. A child of fork serves no
// process. Errors: the driver's codes.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// The contents of the 64 bytes of a CUipcMemHandle.
struct IpcName {
  std::uint64_t mark = 0;
  char socket[32] = {};  // the exporter's socket, without '@'
  std::uint64_t region = 0;
  std::uint64_t offset = 0;  // the allocation's offset in the region
  std::int64_t pid = 0;
};
static_assert(sizeof(IpcName) == sizeof(CUipcMemHandle));
inline constexpr std::uint64_t kIpcMark = 0x3163'7069'6772'6d67;

struct IpcMemory {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};

// Returns the socket's name for handles. The first call starts the thread that serves descriptors of this
// process's regions.
Result<std::string> ipc_server_name();

// Requests the descriptor and the size of the memory from the process that `name` identifies. Fails after 5 s
// without an answer.
Result<IpcMemory> fetch_ipc_memory(const IpcName& name);

}  // namespace ckpt::shim
