// SPDX-License-Identifier: Apache-2.0
// The executor of one CUDA context. It serves the library's requests on its control thread, and starts a
// thread per stream. Another thread watches the card for injected faults. The executor exits when the socket
// is closed or the program exits, whichever is first.
#pragma once

#include <memory>
#include <vector>

#include "tests/simulators/cudasim/card/card.h"
#include "tests/simulators/cudasim/device/memory.h"
#include "tests/simulators/cudasim/device/module.h"
#include "tests/simulators/cudasim/protocol/message.h"
#include "tests/simulators/cudasim/protocol/shared.h"

namespace cudasim {

class Executor {
 public:
  // Serves requests; returns when the program has exited.
  static void serve(int socket);

 private:
  Executor(int socket, int program_fd) : socket_(socket), program_fd_(program_fd) {}
  bool start(const RequestMessage& request, int fd);
  void serve_requests();
  CUresult handle(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd);
  CUresult handle_memory(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd);
  CUresult handle_module(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd);
  CUresult open_stream(std::uint64_t slot);
  void watch_card();
  void wedge_if_killed();

  int socket_;
  int program_fd_;
  std::vector<std::unique_ptr<Card>> cards_;
  Card* card_ = nullptr;
  pid_t program_ = 0;
  int context_slot_ = -1;
  ContextShared* shared_ = nullptr;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<Modules> modules_;
};

}  // namespace cudasim
