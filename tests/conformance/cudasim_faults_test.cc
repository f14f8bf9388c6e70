// SPDX-License-Identifier: Apache-2.0
// Tests of faults that are injected into the software driver from outside, through cudasim-ctl, as by an
// operator or a test script.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/checkpoint/checkpoint_support.h"

namespace conformance {
namespace {

int control(std::vector<std::string> words) {
  words.insert(words.begin(), "cudasim-ctl");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, CUDASIM_CTL, nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Tests with a context of their own, since most of them end the context.
class FaultTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(api().cuInit(0));
    ASSERT_EQ(0, control({"reset"}));
    ASSERT_OK(api().cuCtxCreate_v2(&context_, 0, 0));
    ASSERT_OK(api().cuMemAlloc_v2(&memory_, kMiB));
    ASSERT_OK(api().cuCtxSynchronize());
  }
  void TearDown() override {
    EXPECT_EQ(0, control({"reset"}));
    EXPECT_OK(api().cuCtxDestroy_v2(context_));
  }
  // Waits for an injected error and returns it. The error reaches the context through its executor after a
  // short delay.
  CUresult error_comes() {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 100000 && result == CUDA_SUCCESS; i++) result = api().cuMemsetD8_v2(memory_, 0, 16);
    return result;
  }
  // Checks that a new context on the same device works. The fault must not affect such a context.
  void expect_new_context_works() {
    CUcontext other = nullptr;
    CUdeviceptr memory = 0;
    ASSERT_OK(api().cuCtxCreate_v2(&other, 0, 0));
    EXPECT_OK(api().cuMemAlloc_v2(&memory, kMiB));
    EXPECT_OK(api().cuMemsetD8_v2(memory, 1, kMiB));
    EXPECT_OK(api().cuCtxDestroy_v2(other));
    ASSERT_OK(api().cuCtxPushCurrent_v2(context_));
  }
  CUcontext context_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(FaultTest, AnAllocationAboveTheLimitFailsAndTheContextKeepsWorking) {
  ASSERT_EQ(0, control({"limit", "32MiB"}));
  CUdeviceptr large = 0;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, api().cuMemAlloc_v2(&large, 64 * kMiB));
  EXPECT_OK(api().cuMemsetD8_v2(memory_, 1, kMiB));
  ASSERT_EQ(0, control({"reset"}));
  EXPECT_OK(api().cuMemAlloc_v2(&large, 64 * kMiB));
}

TEST_F(FaultTest, TheChosenCopyFailsAndTheErrorPersists) {
  std::vector<char> host(4096);
  ASSERT_EQ(0, control({"fail-copy", "3"}));
  EXPECT_OK(api().cuMemcpyDtoH_v2(host.data(), memory_, host.size()));
  EXPECT_OK(api().cuMemcpyHtoD_v2(memory_, host.data(), host.size()));
  EXPECT_CUDA(CUDA_ERROR_ECC_UNCORRECTABLE, api().cuMemcpyDtoH_v2(host.data(), memory_, host.size()));
  EXPECT_CUDA(CUDA_ERROR_ECC_UNCORRECTABLE, api().cuCtxSynchronize());
  expect_new_context_works();
}

TEST_F(FaultTest, EveryCallFailsOnALostDevice) {
  ASSERT_EQ(0, control({"lose-device"}));
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, error_comes());
  CUcontext other = nullptr;
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, api().cuCtxCreate_v2(&other, 0, 0));
  CUcontext second = nullptr;
  ASSERT_OK(api().cuCtxCreate_v2(&second, 0, 1));
  EXPECT_OK(api().cuCtxSynchronize());
  EXPECT_OK(api().cuCtxDestroy_v2(second));
}

TEST_F(FaultTest, ALostDeviceDoesNotHangAWaitingProgram) {
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate(stream);
  ASSERT_EQ(0, control({"lose-device"}));
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, api().cuStreamSynchronize(stream));
}

TEST_F(FaultTest, AnXidForAProcessEndsTheContextsOfTheProcess) {
  ASSERT_EQ(0, control({"xid", "94", std::to_string(::getpid())}));
  EXPECT_CUDA(CUDA_ERROR_CONTAINED, error_comes());
  EXPECT_EQ(1, control({"xid", "94", "1"})) << "a process without a context is no victim";
  expect_new_context_works();
}

TEST_F(FaultTest, InjectedLatencyDelaysEachCommand) {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  ASSERT_OK(api().cuEventCreate(&begin, 0));
  ASSERT_OK(api().cuEventCreate(&end, 0));
  ASSERT_EQ(0, control({"latency", "20000"}));
  ASSERT_OK(api().cuEventRecord(begin, nullptr));
  ASSERT_OK(api().cuMemsetD8Async(memory_, 1, 16, nullptr));
  ASSERT_OK(api().cuEventRecord(end, nullptr));
  ASSERT_OK(api().cuCtxSynchronize());
  float milliseconds = 0;
  ASSERT_OK(api().cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 20);
}

// Returns the pid that `status` shows after "executor", of the context that this test has made last.
pid_t executor_pid() {
  int ends[2];
  EXPECT_EQ(0, ::pipe(ends));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string words[] = {"cudasim-ctl", "--device", "0", "status"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(0, ::posix_spawn(&child, CUDASIM_CTL, &actions, nullptr, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t got; (got = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  const std::string mark = "context of " + std::to_string(::getpid()) + " executor ";
  const std::size_t at = text.rfind(mark);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + mark.size());
}

TEST_F(FaultTest, AKilledExecutorAppearsAsALostDevice) {
  const pid_t executor = executor_pid();
  ASSERT_GT(executor, 1);
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate(stream);
  ASSERT_EQ(0, ::kill(executor, SIGKILL));
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, api().cuStreamSynchronize(stream));
  CUdeviceptr more = 0;
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, api().cuMemAlloc_v2(&more, kMiB));
  expect_new_context_works();
}

TEST_F(FaultTest, InvalidControlCommandsAreRefused) {
  EXPECT_EQ(64, control({"limit", "much"}));
  EXPECT_EQ(64, control({"frobnicate"}));
  EXPECT_EQ(64, control({}));
  EXPECT_EQ(1, control({"--dir", "/no/such/folder", "status"}));
  EXPECT_EQ(0, control({"status"}));
}

TEST_F(FaultTest, MemoryOfAnotherNodeCannotBeImported) {
  Mapped memory(4 * kMiB, true);
  ASSERT_OK(api().cuMemsetD8_v2(memory.address, 0x11, memory.bytes));
  int fd = -1;
  ASSERT_OK(
      api().cuMemExportToShareableHandle(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const std::string own = std::getenv("CUDASIM_DIR");
  ::setenv("CUDASIM_DIR", (own + "-other").c_str(), 1);
  Child stranger("import");
  ::setenv("CUDASIM_DIR", own.c_str(), 1);
  stranger.send_text("take", fd);
  EXPECT_EQ(2, stranger.wait()) << "the import fails";
  Child neighbour("import");
  neighbour.send_text("take", fd);
  EXPECT_EQ("imported", neighbour.receive_text());
  neighbour.send_text("bye");
  EXPECT_EQ(0, neighbour.wait());
  ::close(fd);
}

// Returns how much of `bytes` of this memory is in huge pages, when it is mapped as an executor maps it.
std::size_t huge_bytes(int fd, std::size_t bytes) {
  void* reserved = ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(MAP_FAILED, reserved);
  const auto start = (reinterpret_cast<std::uintptr_t>(reserved) + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  void* mapped =
      ::mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  EXPECT_NE(MAP_FAILED, mapped);
  EXPECT_EQ(0, ::madvise(mapped, bytes, MADV_POPULATE_READ));
  std::ifstream maps("/proc/self/smaps");
  std::size_t huge = 0;
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2) here = from == start;
    if (here && std::sscanf(line.c_str(), "ShmemPmdMapped: %lu", &kib) == 1) huge = kib * 1024;
  }
  ::munmap(reserved, 2 * bytes);
  return huge;
}

// Tests with a context whose executor starts with a given value of CUDASIM_HUGE_PAGES.
class HugePagesTest : public FaultTest {
 protected:
  static constexpr std::size_t kBytes = 8 * kMiB;
  static constexpr std::size_t kOwnBytes = 2 * kMiB;  // the size of memory_, which the card's accounting
                                                      // includes

  // Creates memory in a new context, checks its content and its accounting, and returns how much of it is in
  // huge pages.
  std::size_t huge_in_new_context(const char* value) {
    ::setenv("CUDASIM_HUGE_PAGES", value, 1);
    CUcontext context = nullptr;
    EXPECT_OK(api().cuCtxCreate_v2(&context, 0, 0));
    ::unsetenv("CUDASIM_HUGE_PAGES");
    std::size_t total = 0, free_before = 0;
    EXPECT_OK(api().cuMemGetInfo_v2(&free_before, &total));
    // Memory of an earlier test's crashed context is freed after a short delay.
    EXPECT_TRUE(comes_back(total - kOwnBytes));
    free_before = free_memory();
    std::size_t huge = 0;
    {
      Mapped memory(kBytes, true);
      EXPECT_EQ(free_before - kBytes, free_memory());
      EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 0xA5), read_bytes(memory.address, kBytes));
      int fd = -1;
      EXPECT_OK(api().cuMemExportToShareableHandle(&fd, memory.handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
      huge = huge_bytes(fd, kBytes);
      ::close(fd);
    }
    EXPECT_EQ(free_before, free_memory());
    EXPECT_OK(api().cuCtxDestroy_v2(context));
    EXPECT_OK(api().cuCtxPushCurrent_v2(context_));
    return huge;
  }
};

TEST_F(HugePagesTest, NewMemoryUsesSmallPagesByDefault) {
  EXPECT_EQ(0u, huge_in_new_context("0"));
}

TEST_F(HugePagesTest, NewMemoryUsesHugePagesWhenRequested) {
  const std::size_t huge = huge_in_new_context("1");
  if (huge < kBytes)
    GTEST_SKIP() << "this kernel, or a machine short of free huge pages, gave " << huge << " bytes";
  EXPECT_EQ(kBytes, huge);
}

TEST_F(HugePagesTest, NewMemoryUsesSmallPagesIfTheKernelRefusesHugePages) {
  ASSERT_EQ(0, ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));  // executors inherit this setting
  EXPECT_EQ(0u, huge_in_new_context("1"));
  ASSERT_EQ(0, ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
}

// On hardware, kernels can also access the memory. In the software driver, only copies accept the memory's
// host address.
TEST_F(FaultTest, RegisteredMemoryIsAccessibleOnlyToCopies) {
  const int fd = ::memfd_create("conformance", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, kMiB));
  void* host = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_OK(api().cuMemHostRegister_v2(host, kMiB, 0));
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD8_v2(address, 1, 16));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, api().cuStreamWriteValue32_v2(nullptr, address, 1, 0));
  CUdeviceptr device = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, api().cuMemHostGetDevicePointer_v2(&device, host, 0));
  EXPECT_OK(api().cuMemHostUnregister(host));
  ::munmap(host, kMiB);
  ::close(fd);
}

TEST_F(FaultTest, WritesToReadOnlyMemoryAreRefused) {
  Mapped memory(2 * kMiB);
  const CUmodule module = load_kernels();
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  ASSERT_OK(api().cuMemSetAccess(memory.address, memory.bytes, &access, 1));
  EXPECT_EQ(0xA5, read_bytes(memory.address + 5, 1)[0]) << "what new memory holds here";
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD8_v2(memory.address, 1, 16));
  ASSERT_OK(launch(kernel(module, "store"), 1, 1, nullptr, std::uint64_t{memory.address}, std::uint32_t{1}));
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, api().cuCtxSynchronize());
}

struct NvmlEvent {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

class NvmlFaultTest : public FaultTest {
 protected:
  void SetUp() override {
    FaultTest::SetUp();
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
    ASSERT_NE(nullptr, library_);
    ASSERT_EQ(0, call("nvmlInit_v2"));
    ASSERT_EQ(0, call("nvmlDeviceGetHandleByIndex_v2", 0U, &gpu_));
    ASSERT_EQ(0, call("nvmlEventSetCreate", &set_));
    ASSERT_EQ(0, call("nvmlDeviceRegisterEvents", gpu_, 0x8008ULL, set_));
  }
  void TearDown() override {
    EXPECT_EQ(0, call("nvmlEventSetFree", set_));
    EXPECT_EQ(0, call("nvmlShutdown"));
    FaultTest::TearDown();
  }
  template <typename... Args>
  int call(const char* name, Args... args) {
    auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    return function != nullptr ? function(args...) : -1;
  }
  void* library_ = nullptr;
  void* gpu_ = nullptr;
  void* set_ = nullptr;
};

TEST_F(NvmlFaultTest, XidsArriveInOrder) {
  ASSERT_EQ(0, control({"xid", "63"}));
  ASSERT_EQ(0, control({"xid", "79"}));
  NvmlEvent event{};
  for (const unsigned long long code : {63ULL, 79ULL}) {
    ASSERT_EQ(0, call("nvmlEventSetWait_v2", set_, &event, 10000U));
    EXPECT_EQ(gpu_, event.device);
    EXPECT_EQ(8ULL, event.type);
    EXPECT_EQ(code, event.data);
  }
  EXPECT_EQ(10, call("nvmlEventSetWait_v2", set_, &event, 0U));
}

TEST_F(NvmlFaultTest, AFaultingKernelRaisesXid31) {
  const CUmodule module = load_kernels();
  CUdeviceptr reserved = 0;
  ASSERT_OK(api().cuMemAddressReserve(&reserved, 2 * kMiB, 0, 0, 0));
  ASSERT_OK(launch(kernel(module, "store"), 1, 1, nullptr, std::uint64_t{reserved}, std::uint32_t{1}));
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, api().cuCtxSynchronize());
  NvmlEvent event{};
  ASSERT_EQ(0, call("nvmlEventSetWait_v2", set_, &event, 10000U));
  EXPECT_EQ(31ULL, event.data);
  EXPECT_OK(api().cuMemAddressFree(reserved, 2 * kMiB));
}

// A thread in a hanging call sleeps on a word of the device. Its query is answered after the reset.
TEST_F(NvmlFaultTest, NvmlCallsHangUntilTheReset) {
  ASSERT_EQ(0, control({"hang-nvml"}));
  std::atomic<pid_t> thread{0};
  std::atomic<bool> returned{false};
  unsigned long long answer[3] = {};
  std::thread asker([&] {
    thread = ::gettid();
    EXPECT_EQ(0, call("nvmlDeviceGetMemoryInfo", gpu_, static_cast<void*>(answer)));
    returned = true;
  });
  const auto sleeps = [&] {
    std::ifstream file("/proc/self/task/" + std::to_string(thread.load()) + "/syscall");
    std::string number;
    return static_cast<bool>(file >> number) && number == std::to_string(SYS_futex);
  };
  while (!sleeps()) ::sched_yield();
  EXPECT_FALSE(returned);
  EXPECT_EQ(0, control({"reset"}));
  asker.join();
  EXPECT_NE(0ULL, answer[0]);
}

TEST_F(NvmlFaultTest, AnXidInjectedWithoutAFaultDoesNotAffectTheProcess) {
  ASSERT_EQ(0, control({"xid", "94", "--pid", std::to_string(::getpid()), "--quiet"}));
  NvmlEvent event{};
  ASSERT_EQ(0, call("nvmlEventSetWait_v2", set_, &event, 10000U));
  EXPECT_EQ(94ULL, event.data);
  EXPECT_OK(api().cuCtxSynchronize());
}

TEST_F(NvmlFaultTest, RemappedRowsAreReported) {
  unsigned rows[4] = {};
  const auto ask = [&] {
    return call("nvmlDeviceGetRemappedRows", gpu_, &rows[0], &rows[1], &rows[2], &rows[3]);
  };
  ASSERT_EQ(0, ask());
  EXPECT_EQ(0U, rows[2] + rows[3]);
  ASSERT_EQ(0, control({"remap", "pending"}));
  ASSERT_EQ(0, control({"remap", "failed"}));
  ASSERT_EQ(0, ask());
  EXPECT_EQ(1U, rows[2]);
  EXPECT_EQ(1U, rows[3]);
}

TEST_F(NvmlFaultTest, TheRecoveryActionIsReportedAsAnEventAndAsAField) {
  ASSERT_EQ(0, control({"recovery", "1"}));
  NvmlEvent event{};
  ASSERT_EQ(0, call("nvmlEventSetWait_v2", set_, &event, 10000U));
  EXPECT_EQ(0x8000ULL, event.type);
  struct {
    unsigned field = 230;
    unsigned scope = 0;
    long long times[2] = {};
    unsigned type = 0;
    int result = -1;
    unsigned long long value = 0;
  } value;
  ASSERT_EQ(0, call("nvmlDeviceGetFieldValues", gpu_, 1, static_cast<void*>(&value)));
  EXPECT_EQ(1U, static_cast<unsigned>(value.value));
}

TEST_F(NvmlFaultTest, NvmlReportsALostDeviceAsLost) {
  ASSERT_EQ(0, control({"lose-device"}));
  char name[96];
  EXPECT_EQ(15, call("nvmlDeviceGetName", gpu_, static_cast<char*>(name), unsigned{sizeof name}));
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, error_comes());
}

// Tests with a program whose context was recreated by a restore, on a card that is wedged when the program is
// killed.
class WedgeTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    ASSERT_EQ(0, control({"reset"}));
    ASSERT_EQ(0, control({"wedge-on-kill"}));
  }
  void TearDown() override {
    EXPECT_EQ(0, control({"reset"}));
    CheckpointTest::TearDown();
  }
  void save() const {
    ASSERT_OK(lock());
    ASSERT_OK(checkpoint());
  }
  void bring_back() const {
    ASSERT_OK(restore());
    ASSERT_OK(unlock());
  }
  void kill_job() const {
    job_->child.kill();
    EXPECT_EQ(-SIGKILL, job_->child.wait());
  }
  static std::string status() {
    std::FILE* pipe = ::popen(CUDASIM_CTL " --device 0 status", "r");
    char text[4096] = {};
    const std::size_t length = std::fread(text, 1, sizeof text - 1, pipe);
    ::pclose(pipe);
    return {text, length};
  }
  [[nodiscard]] bool has_executor() const {
    return status().find("context of " + std::to_string(pid()) + " ") != std::string::npos;
  }
  static bool is_wedged() { return status().find("hung 1") != std::string::npos; }
};

TEST_F(WedgeTest, KillingARestoredProgramHangsTheCard) {
  save();
  bring_back();
  EXPECT_FALSE(is_wedged());
  kill_job();
  while (has_executor()) ::sched_yield();
  EXPECT_TRUE(is_wedged());
}

TEST_F(WedgeTest, KillingACheckpointedProgramLeavesTheCardUsable) {
  save();
  bring_back();
  save();
  EXPECT_FALSE(has_executor());
  kill_job();
  EXPECT_FALSE(is_wedged());
}

TEST_F(WedgeTest, KillingAProgramThatWasNeverRestoredLeavesTheCardUsable) {
  kill_job();
  while (has_executor()) ::sched_yield();
  EXPECT_FALSE(is_wedged());
}

}  // namespace
}  // namespace conformance
