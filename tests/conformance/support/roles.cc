// SPDX-License-Identifier: Apache-2.0
// The roles: the work of the tests' second processes. A role returns its exit status; a value other than 0 is
// a failure that it has detected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

constexpr int kSocket = 3;
constexpr std::size_t kBytes = 4 * kMiB;

bool start_context() {
  CUcontext context = nullptr;
  return load_api() != nullptr && api().cuInit(0) == CUDA_SUCCESS &&
         api().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         api().cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

// Imports the received memory, expects it full of 0x11 and fills it with 0x22.
int import_memory(int socket) {
  if (!start_context()) return 1;
  int fd = -1;
  receive_text(socket, &fd);
  CUmemGenericAllocationHandle handle = 0;
  void* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  if (api().cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
      CUDA_SUCCESS) {
    return 2;
  }
  ::close(fd);
  Mapped memory(handle, kBytes);
  for (const std::uint8_t byte : read_bytes(memory.address, kBytes)) {
    if (byte != 0x11) return 3;
  }
  if (api().cuMemsetD8_v2(memory.address, 0x22, kBytes) != CUDA_SUCCESS) return 4;
  if (api().cuCtxSynchronize() != CUDA_SUCCESS) return 5;
  send_text(socket, "imported");
  receive_text(socket);
  return 0;
}

// Exports memory full of 0x33 and waits to be killed.
int export_memory(int socket) {
  if (!start_context()) return 1;
  Mapped memory(kBytes, true);
  int fd = -1;
  if (api().cuMemsetD8_v2(memory.address, 0x33, kBytes) != CUDA_SUCCESS) return 2;
  if (api().cuCtxSynchronize() != CUDA_SUCCESS) return 4;
  if (api().cuMemExportToShareableHandle(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
      CUDA_SUCCESS) {
    return 3;
  }
  send_text(socket, "exported", fd);
  ::close(fd);
  receive_text(socket);
  return 0;
}

int hold_memory(int socket) {
  if (!start_context()) return 1;
  CUdeviceptr memory = 0;
  if (api().cuMemAlloc_v2(&memory, 64 * kMiB) != CUDA_SUCCESS) return 2;
  send_text(socket, "holding");
  receive_text(socket);
  return 0;
}

int call_uninitialized(int) {
  CUcontext context = nullptr;
  if (load_api() == nullptr) return 1;
  if (api().cuCtxGetCurrent(&context) != CUDA_ERROR_NOT_INITIALIZED) return 2;
  int count = 0;
  return api().cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 3;
}

// Stores to an illegal address. This ends the context permanently, but affects nothing else.
int store_illegally(int) {
  if (!start_context()) return 1;
  const CUfunction store = kernel(load_kernels(), "store");
  CUdeviceptr reserved = 0;
  CUdeviceptr memory = 0;
  if (api().cuMemAddressReserve(&reserved, 2 * kMiB, 0, 0, 0) != CUDA_SUCCESS) return 2;
  if (api().cuMemAlloc_v2(&memory, 4096) != CUDA_SUCCESS) return 3;
  if (launch(store, 1, 1, nullptr, std::uint64_t{reserved}, std::uint32_t{1}) != CUDA_SUCCESS) return 4;
  if (api().cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS) return 5;
  if (api().cuMemsetD8_v2(memory, 0, 4096) != CUDA_ERROR_ILLEGAL_ADDRESS) return 6;
  CUdeviceptr more = 0;
  if (api().cuMemAlloc_v2(&more, 4096) != CUDA_ERROR_ILLEGAL_ADDRESS) return 7;
  return api().cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 8;
}

// Opens the memory of a handle, expects it full of 0x31 and fills it with 0x32. Opened twice, the memory has
// the same address.
int open_handle(int socket) {
  if (!start_context()) return 1;
  const std::string text = receive_text(socket);
  CUipcMemHandle handle{};
  if (text.size() != sizeof handle.reserved) return 2;
  std::memcpy(handle.reserved, text.data(), text.size());
  CUdeviceptr memory = 0;
  CUdeviceptr again = 0;
  if (api().cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
    return 3;
  if (api().cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS)
    return 4;
  if (again != memory || read_bytes(memory, 1)[0] != 0x31) return 5;
  if (api().cuMemsetD8_v2(memory, 0x32, kBytes) != CUDA_SUCCESS || api().cuCtxSynchronize() != CUDA_SUCCESS)
    return 6;
  send_text(socket, "changed");
  receive_text(socket);
  if (api().cuIpcCloseMemHandle(memory) != CUDA_SUCCESS) return 7;
  return api().cuIpcCloseMemHandle(memory) == CUDA_SUCCESS ? 0 : 8;
}

// Reports the only device that the process sees.
int show_device(int socket) {
  CUuuid uuid{};
  int count = 0;
  if (!start_context() || api().cuDeviceGetCount(&count) != CUDA_SUCCESS || count != 1) return 1;
  if (api().cuDeviceGetUuid_v2(&uuid, 0) != CUDA_SUCCESS) return 2;
  send_text(socket, std::string(uuid.bytes, sizeof uuid.bytes));
  return 0;
}

}  // namespace

const std::map<std::string, Role>& roles() {
  static const std::map<std::string, Role> all = {
      {"checkpoint_job", checkpoint_job},
      {"import", import_memory},
      {"export", export_memory},
      {"hold", hold_memory},
      {"open_handle", open_handle},
      {"show_device", show_device},
      {"uninitialized", call_uninitialized},
      {"store_illegally", store_illegally},
  };
  return all;
}

}  // namespace conformance

int main(int argc, char** argv) {
  const char kRole[] = "--role=";
  if (argc > 1 && std::strncmp(argv[1], kRole, sizeof kRole - 1) == 0) {
    const auto role = conformance::roles().find(argv[1] + sizeof kRole - 1);
    return role != conformance::roles().end() ? role->second(conformance::kSocket) : 64;
  }
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  return conformance::write_answers() ? failed : 1;
}
