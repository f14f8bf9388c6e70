// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress and cuGetExportTable. A name stands for several exported functions, one for each version of its signature; the
// CUDA version that the program was built for chooses. cudasim_versions.def (made by CMake from
// cudaTypedefs.h) has since when each one exists.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

struct Since {
  const char* name;
  int version;
};

constexpr Since kSince[] = {
#define CUDASIM_VERSION(name, version) {#name, version},
#include "cudasim_versions.def"
#undef CUDASIM_VERSION
};

// The versions of a name, oldest first.
std::vector<int> versions_of(const std::string& name) {
  std::vector<int> versions;
  for (const Since& since : kSince) {
    if (name == since.name) versions.push_back(since.version);
  }
  std::sort(versions.begin(), versions.end());
  versions.erase(std::unique(versions.begin(), versions.end()), versions.end());
  return versions;
}

// In this very library: one in front (a preloaded shim) must not answer for it.
void* find(const std::string& symbol) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&find), &info) == 0) return nullptr;
  void* own = ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (own == nullptr) return nullptr;
  void* found = ::dlsym(own, symbol.c_str());
  ::dlclose(own);
  return found;
}

void* find_version(const std::string& name, std::size_t number, bool per_thread) {
  std::string symbol = number == 0 ? name : name + "_v" + std::to_string(number + 1);
  // The third signature of this one is exported by another name.
  if (name == "cuGraphInstantiate" && number >= 2) symbol = "cuGraphInstantiateWithFlags";
  if (per_thread) {
    for (const char* ending : {"_ptsz", "_ptds"}) {
      if (void* found = find(symbol + ending)) return found;
    }
  }
  return find(symbol);
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CUDASIM_CHECK(symbol != nullptr && function != nullptr && (flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
  *function = nullptr;
  const std::vector<int> versions = versions_of(symbol);
  CUdriverProcAddressQueryResult found =
      versions.empty() ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  const auto after = std::upper_bound(versions.begin(), versions.end(), version);
  for (auto number = after - versions.begin(); number > 0 && *function == nullptr; number--) {
    *function = find_version(symbol, static_cast<std::size_t>(number) - 1,
                             (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  }
  if (*function != nullptr) found = CU_GET_PROC_ADDRESS_SUCCESS;
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return api::cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

// There are no private tables here. NVIDIA's runtime library passes its user an error without a reason.
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  CUDASIM_CHECK(table != nullptr && id != nullptr, CUDA_ERROR_INVALID_VALUE);
  static std::atomic_flag explained;
  if (explained.test_and_set()) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr std::string_view kReason =
      "cudasim: NVIDIA's runtime library (libcudart) does not run on the software GPU: it asks the driver "
      "for private "
      "tables, one of which is the proof that it is NVIDIA's. Use a real GPU, or the driver API "
      "(docs/adr/0044-libcudart-and-the-software-driver.md)\n";
  (void)!::write(STDERR_FILENO, kReason.data(), kReason.size());
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace cudasim::api
