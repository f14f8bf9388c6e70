// SPDX-License-Identifier: Apache-2.0
// The protocol by which cuCheckpointProcess* of one process reaches another process. The receiving program
// has no open socket for orders. Its driver has a thread (kOrderThread, found by name in /proc) that sleeps
// until kOrderSignal. The caller listens on an abstract Unix socket whose name contains a random number, and
// sends the number with the signal to this thread. The thread connects, receives one Order, executes the
// order, answers with one OrderReply and closes the connection. Both ends belong to one build, so the structs
// are sent unchanged; received values are checked nevertheless.
#pragma once

#include <cstdint>

#include "tests/simulators/cudasim/card/settings.h"

namespace cudasim {

inline constexpr char kOrderThread[] = "cudasim-orders";
inline constexpr int kOrderSignal = 61;  // a real-time signal without another use

enum class OrderKind : std::uint32_t { kGetState, kLock, kCheckpoint, kRestore, kUnlock };

struct Order {
  OrderKind kind;
  std::uint32_t timeout_ms;  // timeout of kLock; 0: none
  // For kRestore: `dir`, `name` and the following fields describe the caller's machine, on which the program
  // continues. The devices are those of this machine.
  char dir[1024];
  char name[256];
  std::int32_t devices;
  std::uint32_t huge_pages;
  std::uint32_t imports;  // an Imports value
  std::uint64_t memory;
  std::uint32_t pair_count;
  struct {
    Uuid from;
    Uuid to;
  } pairs[kMaxDevices];
};

struct OrderReply {
  std::uint32_t result;  // a CUresult
  std::uint32_t state;   // a CUprocessState
};

}  // namespace cudasim
