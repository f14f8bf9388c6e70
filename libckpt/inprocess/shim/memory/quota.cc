// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/quota.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ckpt::shim {

std::uint64_t Quota::limit_from_environment() {
  const char* text = std::getenv("GPUMIGRATE_GPU_MEMORY");
  if (text == nullptr || std::strspn(text, "0123456789") != std::strlen(text)) return 0;
  return std::strtoull(text, nullptr, 10);
}

bool Quota::reserve(int device, std::uint64_t bytes) {
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

void Quota::explain(int device, std::uint64_t bytes) {
  if (explained_.exchange(true, std::memory_order_relaxed)) return;
  constexpr double kMiB = 1024.0 * 1024.0;
  char line[192];
  const int length = std::snprintf(
      line, sizeof line,
      "gpumigrate: out of memory: the quota (run --gpu-memory) is %.1f MiB, %.1f MiB are used, %.1f MiB more "
      "were requested\n",
      static_cast<double>(limit_) / kMiB, static_cast<double>(used(device)) / kMiB,
      static_cast<double>(bytes) / kMiB);
  if (length > 0) (void)!::write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

std::uint64_t Quota::used(int device) const {
  return used_[slot(device)].load(std::memory_order_relaxed);
}

}  // namespace ckpt::shim
