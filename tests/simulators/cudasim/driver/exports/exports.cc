// SPDX-License-Identifier: Apache-2.0
// The exported functions: one for every function of cuda.h (CMake generates the list from
// libckpt/cuda/driver_functions.def). Each function passes the gate and calls the function of the same name
// in cudasim::api. A missing function returns CUDA_ERROR_NOT_SUPPORTED and writes a line to the log. X_ptds
// and X_ptsz are X with the per-thread default stream.
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/simulators/cudasim/driver/gate.h"

// CUDASIM_EXPORT(exported name, name in cudasim::api) declares the function that an export calls.
namespace cudasim::api {
#define CUDASIM_EXPORT(name, base) __attribute__((weak)) decltype(::name) base;
#include "cudasim_exports.def"
#undef CUDASIM_EXPORT
}  // namespace cudasim::api

namespace cudasim {
namespace {

enum Row : unsigned {
#define CUDASIM_EXPORT(name, base) kRow_##name,
#include "cudasim_exports.def"
#undef CUDASIM_EXPORT
  kRows
};

constexpr std::string_view kNames[] = {
#define CUDASIM_EXPORT(name, base) #name,
#include "cudasim_exports.def"
#undef CUDASIM_EXPORT
};

// Returns whether a call passes the gate in every state: calls that reveal nothing about the process, and
// calls that lock and unlock it.
constexpr bool passes_always(std::string_view name) {
  return name.starts_with("cuCheckpoint") || name.starts_with("cuGetProcAddress") ||
         name.starts_with("cuGetError") || name == "cuDriverGetVersion" || name == "cuGetExportTable";
}

CUresult not_supported(Row row) {
  static std::atomic<bool> logged[kRows];
  const char* log = std::getenv("CUDASIM_LOG");
  if (log == nullptr || logged[row].exchange(true)) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = "cudasim: " + std::string(kNames[row]) + " is not supported\n";
  if (fd >= 0 && ::write(fd, line.data(), line.size()) < 0) logged[row] = false;
  if (fd >= 0) ::close(fd);
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <typename F>
struct Export;
template <typename... A>
struct Export<CUresult(A...)> {
  template <CUresult (*kFunction)(A...), Row kRow>
  static CUresult call(A... arguments) {
    constexpr std::string_view kName = kNames[kRow];
    if (kFunction == nullptr) return not_supported(kRow);
    const CallScope scope(!passes_always(kName), kName.ends_with("_ptds") || kName.ends_with("_ptsz"));
    return kFunction(arguments...);
  }
};

}  // namespace
}  // namespace cudasim

extern "C" {
#define CUDASIM_EXPORT(name, base)                                                              \
  __attribute__((used)) static decltype(&::name) cudasim_resolve_##name() {                     \
    return &cudasim::Export<decltype(::name)>::call<&cudasim::api::base, cudasim::kRow_##name>; \
  }                                                                                             \
  __attribute__((ifunc("cudasim_resolve_" #name), visibility("default"))) decltype(::name) name;
#include "cudasim_exports.def"
#undef CUDASIM_EXPORT
}
