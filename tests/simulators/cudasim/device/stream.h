// SPDX-License-Identifier: Apache-2.0
// One stream of an executor: a thread that runs the commands of its ring in order. The stream exists as long
// as the executor.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "tests/simulators/cudasim/card/card.h"
#include "tests/simulators/cudasim/include/cudasim/kernel.h"
#include "tests/simulators/cudasim/protocol/shared.h"

namespace cudasim {

class Stream {
 public:
  Stream(ContextShared* shared, int slot, Card* card, pid_t program)
      : shared_(*shared), own_(shared->streams[slot]), card_(*card), program_(program) {}

  [[noreturn]] void run();

 private:
  void wait_for_commands(std::uint64_t consumed);
  void execute(const CommandHeader* command);
  void launch(const LaunchCommand* command);
  void copy(const CopyCommand* command, const unsigned char* inline_bytes);
  void set(const SetCommand* command);
  void call_host(const HostCommand* command);
  void write_value(const ValueCommand* command);
  void wait_for_value(const ValueCommand* command);
  void delay();
  bool copy_fails();
  bool healthy() { return shared_.error.load(std::memory_order_relaxed) == 0; }
  void fail(std::uint32_t result, std::uint64_t xid);

  ContextShared& shared_;
  StreamShared& own_;
  Card& card_;
  pid_t program_;
};

}  // namespace cudasim
