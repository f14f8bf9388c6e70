// SPDX-License-Identifier: Apache-2.0
// Tests legacy IPC between two processes over the hooks. This program is also the second process: `ipc_test
// --peer`.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "libckpt/inprocess/shim/core/job_state.h"
#include "tests/unit/libckpt/inprocess/shim/memory/memory_fixture.h"

namespace ckpt::shim {
namespace {

constexpr std::size_t kBytes = 8192;

// Opens the handle from standard input, checks the content, writes new content, and closes the handle. The
// exit code indicates the failed step.
int be_peer() {
  CUipcMemHandle handle{};
  if (std::fread(&handle, sizeof handle, 1, stdin) != 1) return 1;
  const GateScope inside("test");
  CUcontext context = nullptr;
  if (real().cuInit(0) != CUDA_SUCCESS || hook::cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      real().cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return 2;
  }
  CUdeviceptr pointer = 0;
  CUdeviceptr again = 0;
  if (hook::cuIpcOpenMemHandle_v2(&pointer, handle, 2) != CUDA_ERROR_INVALID_VALUE) return 3;
  if (hook::cuIpcOpenMemHandle_v2(&pointer, handle, 1) != CUDA_SUCCESS) return 4;
  if (hook::cuIpcOpenMemHandle_v2(&again, handle, 1) != CUDA_SUCCESS || again != pointer) return 5;
  if (!reason()) return 6;
  std::vector<char> bytes(kBytes);
  if (real().cuMemcpyDtoH_v2(bytes.data(), pointer, kBytes) != CUDA_SUCCESS) return 7;
  if (bytes != std::vector<char>(kBytes, 'a')) return 8;
  if (real().cuMemsetD8_v2(pointer, 'b', kBytes) != CUDA_SUCCESS) return 9;
  if (hook::cuIpcCloseMemHandle(pointer) != CUDA_SUCCESS ||
      hook::cuIpcCloseMemHandle(pointer) != CUDA_SUCCESS) {
    return 10;
  }
  if (hook::cuIpcCloseMemHandle(pointer) == CUDA_SUCCESS) return 11;
  CUipcMemHandle gone = handle;
  gone.reserved[12] = static_cast<char>(gone.reserved[12] ^ 1);  // changes a byte of the socket's name
  if (hook::cuIpcOpenMemHandle_v2(&pointer, gone, 1) != CUDA_ERROR_INVALID_HANDLE) return 12;
  return reason() ? 13 : 0;  // all handles are closed: the program can be moved again
}

int run_peer(const CUipcMemHandle& handle) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
  char name[] = "ipc_test";
  char role[] = "--peer";
  char* arguments[] = {name, role, nullptr};
  pid_t child = -1;
  const int spawned = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[0]);
  const bool written = ::write(ends[1], &handle, sizeof handle) == static_cast<ssize_t>(sizeof handle);
  ::close(ends[1]);
  int status = 0;
  if (spawned != 0 || ::waitpid(child, &status, 0) != child || !written) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

using IpcTest = ShimMemoryTest;

TEST_F(IpcTest, AnotherProcessReadsAndWritesSharedMemory) {
  allocate(700);  // ensures that the shared piece is not the first of its slab
  for (const std::size_t bytes : {kBytes, 3 * kMiB}) {
    const CUdeviceptr pointer = allocate(bytes);
    ASSERT_OK(real().cuMemsetD8_v2(pointer, 'a', bytes));
    ASSERT_OK(real().cuCtxSynchronize());
    CUipcMemHandle handle{};
    ASSERT_OK(hook::cuIpcGetMemHandle(&handle, pointer + 100));
    EXPECT_EQ(0, run_peer(handle));
    std::vector<char> seen(kBytes);
    ASSERT_OK(real().cuMemcpyDtoH_v2(seen.data(), pointer, kBytes));
    EXPECT_EQ(std::vector<char>(kBytes, 'b'), seen);
    CUdeviceptr own = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, hook::cuIpcOpenMemHandle_v2(&own, handle, 1));
    EXPECT_STREQ("cuIpcGetMemHandle", reason().value_or(""));  // another process may use the memory
    EXPECT_OK(hook::cuMemFree_v2(pointer));
    EXPECT_FALSE(reason());
  }
}

TEST_F(IpcTest, AProcessIsMovableAgainAfterItsIpcHandlesAreInvalid) {
  const CUdeviceptr first = allocate(700);
  const CUdeviceptr second = allocate(3 * kMiB);
  CUipcMemHandle handle{};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(hook::cuIpcGetMemHandle(&handle, second));
    ASSERT_OK(hook::cuIpcGetMemHandle(&handle, first));
  }
  EXPECT_OK(hook::cuMemFree_v2(second));
  EXPECT_STREQ("cuIpcGetMemHandle", reason().value_or(""));
  EXPECT_OK(hook::cuMemFree_v2(first));
  EXPECT_FALSE(reason());
  // The allocation reuses the position in the slab, but without a handle.
  EXPECT_EQ(first, allocate(700));
  EXPECT_EQ(4, run_peer(handle));
  EXPECT_FALSE(reason());
}

TEST_F(IpcTest, IpcHandlesBecomeInvalidWithTheirContext) {
  CUcontext made = nullptr;
  ASSERT_OK(real().cuCtxCreate_v2(&made, 0, 0));
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle{};
  ASSERT_OK(hook::cuMemAlloc_v2(&pointer, 4096));
  ASSERT_OK(hook::cuIpcGetMemHandle(&handle, pointer));
  EXPECT_TRUE(reason());
  ASSERT_OK(hook::cuCtxDestroy_v2(made));
  EXPECT_FALSE(reason());
}

TEST_F(IpcTest, FreedMemoryCannotBeOpened) {
  const CUdeviceptr pointer = allocate(3 * kMiB);
  CUipcMemHandle handle{};
  ASSERT_OK(hook::cuIpcGetMemHandle(&handle, pointer));
  EXPECT_OK(hook::cuMemFree_v2(pointer));
  EXPECT_EQ(4, run_peer(handle));
  EXPECT_NE(CUDA_SUCCESS, hook::cuIpcGetMemHandle(&handle, pointer));
}

}  // namespace
}  // namespace ckpt::shim

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--peer") == 0) return ckpt::shim::be_peer();
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
