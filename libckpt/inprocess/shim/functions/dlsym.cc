// SPDX-License-Identifier: Apache-2.0
// The dlsym that replaces libc's. It only chooses the handle. A driver function is looked up in the shim if
// both have it, and otherwise in the real driver. A name that the driver lacks is therefore missing, with the
// loader's own message, and a name that the shim does not know is found. libc's dlsym is then entered by a
// jump, as if the program had called it, since RTLD_NEXT depends on the caller.
#include <dlfcn.h>
#include <link.h>

#include "libckpt/inprocess/shim/core/lookup.h"
#include "libckpt/inprocess/shim/core/real_driver.h"
#include "libckpt/inprocess/shim/functions/exports.h"

namespace ckpt::shim {
namespace {

// Returns the handle of the object that contains this address.
void* handle_of(const void* address) noexcept {
  Dl_info unused{};
  void* map = nullptr;
  return ::dladdr1(address, &unused, &map, RTLD_DL_LINKMAP) == 0 ? nullptr : map;
}

// Returns the handle that dlopen("libcuda.so.1") returns in this process. A preloaded object is not a usable
// handle before a call has opened it: only then does the loader make the list of objects that a lookup
// searches.
void* open_own_handle() noexcept {
  const void* const here = reinterpret_cast<void*>(&open_own_handle);
  Dl_info info{};
  void* const opened =
      ::dladdr(here, &info) == 0 ? nullptr : ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return opened != nullptr ? opened : handle_of(here);
}

void* own_handle() noexcept {
  static void* const handle = open_own_handle();
  return handle;
}

void* handle_for(void* handle, const char* name, const void* caller) noexcept {
  if (name == nullptr || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT) return handle;
  void* const own = own_handle();
  const Exported* exported = exported_by_name(name);
  if (exported == nullptr && handle != own) return handle;
  // If the driver looks up its own functions, at its start or later, it gets its own functions and not the
  // shim's.
  if (driver_is_opening() || real_driver_handle() == nullptr || handle_of(caller) == real_driver_handle())
    return handle;
  if (exported != nullptr && real_of(*exported) == nullptr) return real_driver_handle();
  if (handle != own && handle != real_driver_handle()) return handle;
  return exported != nullptr ? own : real_driver_handle();
}

}  // namespace
}  // namespace ckpt::shim

extern "C" {
// These symbols are for the assembler code. Only dlsym is exported.
__attribute__((visibility("hidden"), used)) ckpt::shim::LookUp ckpt_shim_loader_lookup = nullptr;

__attribute__((visibility("hidden"), used)) void* ckpt_shim_handle_for(void* handle, const char* name,
                                                                       const void* caller) {
  if (ckpt_shim_loader_lookup == nullptr) {
    __atomic_store_n(&ckpt_shim_loader_lookup, ckpt::shim::loader_lookup(), __ATOMIC_RELEASE);
  }
  return ckpt::shim::handle_for(handle, name, caller);
}
}

#if defined(__x86_64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    movq (%rsp), %rdx
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    call ckpt_shim_handle_for
    popq %rsi
    .cfi_adjust_cfa_offset -8
    movq %rax, %rdi
    jmp *ckpt_shim_loader_lookup(%rip)
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    str x1, [sp, #16]
    mov x2, x30
    bl ckpt_shim_handle_for
    ldr x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_adjust_cfa_offset -32
    adrp x16, ckpt_shim_loader_lookup
    ldr x16, [x16, #:lo12:ckpt_shim_loader_lookup]
    br x16
    .cfi_endproc
    .size dlsym, .-dlsym
)");
#else
#error "dlsym is written for x86-64 and aarch64"
#endif
