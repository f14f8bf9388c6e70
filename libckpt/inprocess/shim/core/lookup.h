// SPDX-License-Identifier: Apache-2.0
// libc's own dlsym, which the shim's dlsym replaces.
// Threads: any. Errors: as dlsym's (null, and dlerror has the reason).
#pragma once

namespace ckpt::shim {

using LookUp = void* (*)(void* handle, const char* name);
[[nodiscard]] LookUp loader_lookup() noexcept;

[[nodiscard]] inline void* loader_symbol(void* handle, const char* name) noexcept {
  return loader_lookup()(handle, name);
}

}  // namespace ckpt::shim
