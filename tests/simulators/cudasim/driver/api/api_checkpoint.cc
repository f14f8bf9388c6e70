// SPDX-License-Identifier: Apache-2.0
// Checkpoint and restore of a process, called from another process or from the process itself.
#include <cstring>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/order.h"

namespace cudasim {
namespace {

CUresult give(int pid, const Order& order, OrderReply* reply) {
  CUDASIM_TRY(Process::get().ready());
  return give_order(pid, order, reply);
}

CUresult give(int pid, OrderKind kind) {
  Order order{};
  order.kind = kind;
  OrderReply reply{};
  return give(pid, order, &reply);
}

template <typename T>
bool all_zero(const T& reserved) {
  const T zero{};
  return std::memcmp(&reserved, &zero, sizeof reserved) == 0;
}

// Fills in the caller's machine, on which the process continues.
CUresult fill_machine(Order* order) {
  const Settings& machine = settings();
  CUDASIM_CHECK(machine.dir.size() < sizeof order->dir && machine.name.size() < sizeof order->name,
                CUDA_ERROR_OPERATING_SYSTEM);
  std::strcpy(order->dir, machine.dir.c_str());
  std::strcpy(order->name, machine.name.c_str());
  order->devices = machine.devices;
  order->memory = machine.memory;
  order->huge_pages = machine.huge_pages ? 1 : 0;
  order->imports = static_cast<std::uint32_t>(machine.imports);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int* thread) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(thread != nullptr, CUDA_ERROR_INVALID_VALUE);
  return find_order_thread(pid, thread);
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  CUDASIM_CHECK(state != nullptr, CUDA_ERROR_INVALID_VALUE);
  Order order{};
  order.kind = OrderKind::kGetState;
  OrderReply reply{};
  CUDASIM_TRY(give(pid, order, &reply));
  *state = static_cast<CUprocessState>(reply.state);
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* arguments) {
  Order order{};
  order.kind = OrderKind::kLock;
  if (arguments != nullptr) {
    CUDASIM_CHECK(arguments->reserved0 == 0 && all_zero(arguments->reserved1), CUDA_ERROR_INVALID_VALUE);
    order.timeout_ms = arguments->timeoutMs;
  }
  OrderReply reply{};
  return give(pid, order, &reply);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* arguments) {
  CUDASIM_CHECK(arguments == nullptr || all_zero(arguments->reserved), CUDA_ERROR_INVALID_VALUE);
  return give(pid, OrderKind::kCheckpoint);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* arguments) {
  Order order{};
  order.kind = OrderKind::kRestore;
  if (arguments != nullptr) {
    CUDASIM_CHECK(all_zero(arguments->reserved) && arguments->reserved1 == 0, CUDA_ERROR_INVALID_VALUE);
    const bool given = arguments->gpuPairs != nullptr;
    CUDASIM_CHECK(given == (arguments->gpuPairsCount > 0) && arguments->gpuPairsCount <= kMaxDevices,
                  CUDA_ERROR_INVALID_VALUE);
    order.pair_count = arguments->gpuPairsCount;
    for (unsigned i = 0; i < arguments->gpuPairsCount; i++) {
      std::memcpy(order.pairs[i].from.bytes, arguments->gpuPairs[i].oldUuid.bytes, sizeof(Uuid));
      std::memcpy(order.pairs[i].to.bytes, arguments->gpuPairs[i].newUuid.bytes, sizeof(Uuid));
    }
  }
  CUDASIM_TRY(fill_machine(&order));
  OrderReply reply{};
  return give(pid, order, &reply);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* arguments) {
  CUDASIM_CHECK(arguments == nullptr || all_zero(arguments->reserved), CUDA_ERROR_INVALID_VALUE);
  return give(pid, OrderKind::kUnlock);
}

}  // namespace cudasim::api
