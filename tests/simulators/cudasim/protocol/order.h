// SPDX-License-Identifier: Apache-2.0
// How cuCheckpointProcess* of one process reaches another one. The program that gets the order has no open
// socket for it. Its driver has a thread (kOrderThread, found by name in /proc) that sleeps for kOrderSignal.
// The caller listens on an abstract Unix socket whose name holds a random number, sends the number with the
// signal to that thread. The thread connects, takes one Order, does it, answers with one OrderReply and
// closes. Both ends are of one build, so the structs go as they are; what is read is checked all the same.
#pragma once

#include <cstdint>

#include "tests/simulators/cudasim/card/settings.h"

namespace cudasim {

inline constexpr char kOrderThread[] = "cudasim-orders";
inline constexpr int kOrderSignal = 61;  // a real-time signal without another use

enum class OrderKind : std::uint32_t { kGetState, kLock, kCheckpoint, kRestore, kUnlock };

struct Order {
  OrderKind kind;
  std::uint32_t timeout_ms;  // of kLock; 0: none
  // For kRestore: the machine of the caller, where the program goes on, and its devices there.
  char dir[1024];
  char name[256];
  std::int32_t devices;
  std::uint32_t huge_pages;
  std::uint32_t imports;  // Imports
  std::uint64_t memory;
  std::uint32_t pair_count;
  struct {
    Uuid from;
    Uuid to;
  } pairs[kMaxDevices];
};

struct OrderReply {
  std::uint32_t result;  // CUresult
  std::uint32_t state;   // CUprocessState
};

}  // namespace cudasim
