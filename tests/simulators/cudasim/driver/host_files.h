// SPDX-License-Identifier: Apache-2.0
// Imitations of the files that NVIDIA's driver uses in a program in addition to its GPUs. The device is a
// descriptor and a shared mapping that forked children inherit and CRIU cannot dump: secret memory for
// /dev/nvidia*. The listener is an abstract Unix socket that stays open through a checkpoint. A thread's name
// is a file below /proc/self/task with the thread's number, and cuInit fails without this file. The profiler
// is a library that CUDA_INJECTION64_PATH names; with a profiler the driver refuses checkpoints.
//
// Threads: one at a time (cuInit, then the thread that takes orders). Ownership: until the process ends.
#pragma once

namespace cudasim {

class HostFiles {
 public:
  static HostFiles& get();

  // Returns whether the calling thread's name can be written. cuInit checks this first.
  [[nodiscard]] static bool names_threads();
  // Opens the files in cuInit. A kernel without secret memory gives no device; everything else works.
  void open();
  // Loads the profiler after cuInit, without a lock: the library may call the driver.
  void load_profiler();
  void close_device();
  void open_device();
  [[nodiscard]] bool has_profiler() const { return has_profiler_; }

 private:
  void listen();
  int device_ = -1;
  void* mapped_ = nullptr;
  bool listens_ = false;
  bool has_profiler_ = false;
};

}  // namespace cudasim
