// SPDX-License-Identifier: Apache-2.0
// An obstacle that prevents the program from being paused or moved until it is released.
// Threads: constructor, destructor and release() on the main thread. Ownership: RAII; the destructor releases
// the obstacle. Errors: a failed driver call ends the program.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

class Hold {
 public:
  // Creates the obstacle of the given kind. "value": a stream waits for a word of memory. "callback": a
  // stream waits for a host function. "copy": a thread waits in a copy behind such a stream. "handle": memory
  // that other processes may open.
  Hold(const std::string& kind, CUcontext context);
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void release();

 private:
  std::uint32_t* told_ = nullptr;  // pinned word that releases the stream
  CUstream stream_ = nullptr;
  CUdeviceptr shared_ = 0;
  std::atomic<bool> begun_ = false;  // true once the copy's thread has its memory
  std::thread thread_;
};

}  // namespace ckpt::examples
