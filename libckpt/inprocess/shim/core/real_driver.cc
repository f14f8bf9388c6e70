// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/real_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "libckpt/inprocess/shim/core/driver_search.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/core/lookup.h"

namespace ckpt::shim {
namespace {

struct Opened {
  RealDriver functions;
  void* handle = nullptr;
  std::string error;
};

void* open_file(const std::string& path, std::string& error) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = ::dlerror();
    error = "Cannot open the CUDA driver " + path + (text == nullptr ? "" : std::string(": ") + text);
  }
  return handle;
}

void* open_driver(std::string& error) {
  const char* named = std::getenv("GPUMIGRATE_REAL_CUDA");
  if (named != nullptr && *named != 0) return open_file(named, error);
  error = "This machine has no libcuda.so.1: install NVIDIA's driver";
  for (const std::string& path : driver_candidates()) {
    if (void* handle = open_file(path, error)) return handle;
  }
  return nullptr;
}

const Opened* open_once() {
  // This object is never destroyed: the program's own destructors may call the driver.
  auto* opened = new Opened;
  opened->handle = open_driver(opened->error);
  if (opened->handle == nullptr) return opened;
  opened->error.clear();
#define CKPT_DRIVER_FUNCTION(name, kind) \
  opened->functions.name =               \
      reinterpret_cast<decltype(opened->functions.name)>(loader_symbol(opened->handle, #name));
#include "libckpt/inprocess/shim/core/every_function.def"
#undef CKPT_DRIVER_FUNCTION
  return opened;
}

std::atomic<const Opened*> g_opened{nullptr};
std::once_flag g_once;
thread_local bool t_opening = false;

const Opened& opened() noexcept {
  if (const Opened* known = g_opened.load(std::memory_order_acquire)) [[likely]] {
    return *known;
  }
  std::call_once(g_once, [] {
    t_opening = true;
    g_opened.store(open_once(), std::memory_order_release);
    t_opening = false;
    ::dlerror();  // a failed lookup here is not the program's error
  });
  return *g_opened.load(std::memory_order_acquire);
}

}  // namespace

const RealDriver& real() noexcept {
  return opened().functions;
}

void* real_driver_handle() noexcept {
  return opened().handle;
}

const std::string& real_driver_error() noexcept {
  return opened().error;
}

bool driver_is_opening() noexcept {
  return t_opening;
}

CUresult lacking_answer() noexcept {
  return opened().handle == nullptr ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace ckpt::shim
