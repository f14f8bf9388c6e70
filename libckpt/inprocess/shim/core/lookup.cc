// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/lookup.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace ckpt::shim {
namespace {

// Finds dlsym under each version that a glibc of x86-64 or aarch64 has given it. dlvsym itself is hardly ever
// interposed, and has the same versions.
LookUp find() noexcept {
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (void* found = ::dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<LookUp>(found);
  }
  constexpr char kText[] = "gpumigrate: libckpt_shim.so cannot find dlsym in this C library\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, std::strlen(kText));
  std::abort();
}

std::atomic<LookUp> g_found{nullptr};

}  // namespace

LookUp loader_lookup() noexcept {
  LookUp found = g_found.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = find();
    g_found.store(found, std::memory_order_release);
  }
  return found;
}

}  // namespace ckpt::shim
