// SPDX-License-Identifier: Apache-2.0
// Both ends of an order to another process (protocol/order.h). Errors: CUresult.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include "tests/simulators/cudasim/protocol/order.h"

namespace cudasim {

// Starts the thread that takes orders to this process. cuInit calls this once.
void start_taking_orders();

// Finds the thread of process `pid` that takes orders. CUDA_ERROR_INVALID_VALUE: the process does not exist
// or does not use CUDA.
CUresult find_order_thread(pid_t pid, pid_t* thread);
// Gives the order and waits until the program has answered.
CUresult give_order(pid_t pid, const Order& order, OrderReply* reply);

}  // namespace cudasim
