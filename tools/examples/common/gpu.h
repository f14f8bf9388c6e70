// SPDX-License-Identifier: Apache-2.0
// Parts of the driver and of libckpt that every example needs: the primary context of the first device,
// kernels by name, and a ckpt session. The examples are programs of a user, so they link the driver directly
// and exit with one line at the first failure.
// Threads: one thread per program. Ownership: RAII; Gpu outlives Kernels and Session.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/ckpt.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/fail.h"

namespace ckpt::examples {

void check(CUresult result, const char* what);
void check(ckpt_status status, const char* what);

class Gpu {
 public:
  Gpu();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void synchronize() const { check(cuCtxSynchronize(), "cuCtxSynchronize"); }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// The device code NAME.fatbin or NAME.so (whichever the driver accepts) from ../../lib/kernels relative to
// the program.
class Kernels {
 public:
  explicit Kernels(const char* name);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  CUfunction operator[](const char* kernel) const;

 private:
  CUmodule module_ = nullptr;
};

// Returns the stream on which this thread enqueues kernels. The initial value is null: the legacy stream.
[[nodiscard]] CUstream current_stream() noexcept;

// A scope in which another stream is the current stream.
class OnStream {
 public:
  explicit OnStream(CUstream stream) noexcept;
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  const CUstream before_;
};

// Launches a kernel. The arguments must have exactly the types of the kernel's parameters; a device pointer
// is a CUdeviceptr.
template <typename... Args>
void launch(CUfunction kernel, std::uint64_t blocks, std::uint32_t threads, Args... args) {
  void* pointers[] = {static_cast<void*>(&args)...};
  check(cuLaunchKernel(kernel, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1, 0, current_stream(),
                       pointers, nullptr),
        "cuLaunchKernel");
}

// Device memory that does not move with the job: the next instance allocates its own.
class LocalMemory {
 public:
  explicit LocalMemory(std::size_t bytes);
  ~LocalMemory();
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;
  [[nodiscard]] CUdeviceptr get() const noexcept { return pointer_; }

 private:
  CUdeviceptr pointer_ = 0;
};

// A session that registers the program's memory with libckpt. Without libckpt the memory is plain, and the
// calls do nothing.
class Session {
 public:
  explicit Session(bool with_ckpt = true);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  CUdeviceptr alloc(std::size_t bytes);
  void tensor(const char* name, CUdeviceptr pointer, ckpt_dtype dtype, std::vector<std::uint64_t> shape,
              ckpt_kind kind);
  void host_state(const char* name, void* pointer, std::size_t bytes);
  // Calls ckpt_ready(). Returns whether this instance takes over from another instance.
  bool ready();
  void barrier();
  void shutdown();
  [[nodiscard]] ckpt_session* handle() const { return session_; }

 private:
  ckpt_session* session_ = nullptr;  // the libckpt session; null without libckpt
};

void upload(CUdeviceptr to, const void* from, std::size_t bytes);
void download(void* to, CUdeviceptr from, std::size_t bytes);
void add_device(Digest& digest, CUdeviceptr data, std::size_t bytes);

}  // namespace ckpt::examples
