// SPDX-License-Identifier: Apache-2.0
// A program with a CUDA context that is checkpointed from outside. It has memory on the GPU and a thread. It
// prints "ready DEVICE0 DEVICE1" (UUIDs). For each SIGUSR1 it prints "state N memory good|damaged"; SIGTERM
// ends it with code 5.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "libckpt/cuda/driver.h"

namespace {

constexpr std::size_t kWords = 1u << 20;

std::string uuid_of(const ckpt::DriverApi& api, int ordinal) {
  CUuuid uuid{};
  if (api.cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS) return "none";
  std::string text;
  for (const char byte : uuid.bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

bool is_as_filled(const ckpt::Device& device, CUdeviceptr memory) {
  const ckpt::ContextScope scope(device);
  std::vector<std::uint64_t> words(kWords);
  if (device.api().cuMemcpyDtoH_v2(words.data(), memory, kWords * 8) != CUDA_SUCCESS) return false;
  for (std::size_t i = 0; i < kWords; ++i) {
    if (words[i] != i * 0x9e3779b97f4a7c15u) return false;
  }
  return true;
}

CUdeviceptr make_filled(const ckpt::Device& device) {
  const ckpt::ContextScope scope(device);
  CUdeviceptr memory = 0;
  std::vector<std::uint64_t> words(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = i * 0x9e3779b97f4a7c15u;
  if (device.api().cuMemAlloc_v2(&memory, kWords * 8) != CUDA_SUCCESS) return 0;
  return device.api().cuMemcpyHtoD_v2(memory, words.data(), kWords * 8) == CUDA_SUCCESS ? memory : 0;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  sigset_t orders;
  sigemptyset(&orders);
  sigaddset(&orders, SIGUSR1);
  sigaddset(&orders, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &orders, nullptr);
  const auto device = ckpt::Device::open(0);
  if (!device.has_value()) {
    std::printf("%s\n", device.error().to_string().c_str());
    return 1;
  }
  const CUdeviceptr memory = make_filled(*device);
  if (memory == 0) return 2;
  std::printf("ready %s %s\n", uuid_of(device->api(), 0).c_str(), uuid_of(device->api(), 1).c_str());
  for (int number = 1;; ++number) {
    int order = 0;
    ::sigwait(&orders, &order);
    if (order == SIGTERM) ::_exit(5);
    std::printf("state %d memory %s\n", number, is_as_filled(*device, memory) ? "good" : "damaged");
  }
}
