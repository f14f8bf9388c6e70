// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/quota.h"

#include <cstdlib>
#include <cstring>

namespace ckpt::shim {

std::uint64_t Quota::limit_from_environment() {
  const char* text = std::getenv("GPUMIGRATE_GPU_MEMORY");
  if (text == nullptr || std::strspn(text, "0123456789") != std::strlen(text)) return 0;
  return std::strtoull(text, nullptr, 10);
}

bool Quota::take(int device, std::uint64_t bytes) {
  std::atomic<std::uint64_t>& used = used_[slot(device)];
  std::uint64_t before = used.load(std::memory_order_relaxed);
  do {
    if (limit_ != 0 && (before > limit_ || bytes > limit_ - before)) return false;
  } while (!used.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

void Quota::give(int device, std::uint64_t bytes) {
  used_[slot(device)].fetch_sub(bytes, std::memory_order_relaxed);
}

std::uint64_t Quota::used(int device) const {
  return used_[slot(device)].load(std::memory_order_relaxed);
}

}  // namespace ckpt::shim
