// SPDX-License-Identifier: Apache-2.0
// Shared parts of the conformance tests: a fixture with a context, RAII for memory and modules, and second
// processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/support/api.h"

namespace conformance {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

CUmemAllocationProp device_memory(int device, bool exportable);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

// Memory that is created, mapped and accessible, and released at the end of the object. A failed call fails
// the test.
class Mapped {
 public:
  explicit Mapped(std::size_t bytes, bool exportable = false, int device = 0);
  // Maps the memory of `handle`, and takes ownership of the handle.
  Mapped(CUmemGenericAllocationHandle handle, std::size_t bytes, int device = 0);
  ~Mapped();
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;

 private:
  void map(int device);
};

// Returns the files of the tests' kernels, one for each kind of driver. They are in ../lib/kernels relative
// to this program's folder. The program and the kernels can thus be copied to another machine together.
std::vector<std::string> kernel_images();
// Loads the kernels of the tests from the first image that the driver accepts.
CUmodule load_kernels();
CUfunction kernel(CUmodule module, const char* name);

// Runs blocks x threads of a kernel with these arguments on a stream.
template <typename... Args>
CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, Args... args) {
  void* pointers[] = {static_cast<void*>(&args)..., nullptr};
  return api().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr);
}

std::vector<std::uint32_t> read_words(CUdeviceptr from, std::size_t count);
std::vector<std::uint8_t> read_bytes(CUdeviceptr from, std::size_t count);

// A fixture with device 0's primary context current; skipped without a driver.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  [[nodiscard]] bool two_devices() const;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// A gate that blocks a stream until the gate is opened. Work queued behind the gate has certainly not run.
class Gate {
 public:
  explicit Gate(CUstream stream);
  ~Gate() { open(); }  // the stream may reach the gate later
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  std::promise<void> promise_;
  bool opened_ = false;
};

// A second process: this binary in a role (see roles.cc), with a socket to it.
class Child {
 public:
  explicit Child(const std::string& role);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void send_text(const std::string& text, int fd = -1) const;
  // Returns the next message and, if requested, its descriptor; "" when the child has exited.
  std::string receive_text(int* fd = nullptr) const;
  void kill();
  // Waits for the child's exit. Returns the exit status, or the negative signal number.
  int wait();
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int socket() const { return socket_; }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  bool waited_ = false;
};

// The child's side of a test: a function that uses the socket to the test and returns the exit status.
using Role = std::function<int(int socket)>;
const std::map<std::string, Role>& roles();
int checkpoint_job(int socket);
void send_text(int socket, const std::string& text, int fd = -1);
std::string receive_text(int socket, int* fd = nullptr);

std::size_t free_memory();
// Waits until `enough` memory is free, for at most a minute. Memory of ended processes is freed soon after
// their end, not immediately.
bool comes_back(std::size_t enough);

}  // namespace conformance
