// SPDX-License-Identifier: Apache-2.0
// Returns the names of this node's GPUs, and the mover of each GPU.
// Threads: the event loop; every call returns at once. Ownership: the implementation outlives its users.
// Errors: kNotFound if the node has no such GPU.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "agent/gpus/gpu_identity.h"
#include "agent/mover_client/mover_process.h"

namespace ckpt::agent {

class GpuPort {
 public:
  virtual ~GpuPort() = default;
  [[nodiscard]] virtual Result<local::GpuIdentity> identity_of(std::uint32_t gpu) const = 0;
  // Returns NVML's name of the GPU.
  [[nodiscard]] virtual Result<std::string> model_of(std::uint32_t gpu) const = 0;
  // Returns the GPU's mover, which may not have been started yet. A node that does not know its GPUs yet
  // returns a mover for any number.
  [[nodiscard]] virtual Result<std::shared_ptr<MoverProcess>> mover_of(std::uint32_t gpu) = 0;
  // Returns the GPU memory of a process according to the driver's last answer; 0 if the answer does not list
  // the process.
  [[nodiscard]] virtual std::uint64_t device_bytes_of(pid_t pid) const = 0;
};

}  // namespace ckpt::agent
