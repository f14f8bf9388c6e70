// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/support/support.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

namespace conformance {
namespace {

const Api* load_once() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  static Api api;
#define LOAD(name) api.name = {reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)), #name};
#define CKPT_CUDA(name)                                   \
  LOAD(name)                                              \
  if (api.name == nullptr) {                              \
    std::fprintf(stderr, "the driver lacks %s\n", #name); \
    std::abort();                                         \
  }
#define CKPT_CUDA_OPTIONAL(name) LOAD(name)
#include "libckpt/cuda/driver_api.def"
#include "tests/conformance/support/more_functions.def"
#undef CKPT_CUDA
#undef LOAD
  return &api;
}

}  // namespace

const Api* load_api() {
  static const Api* api = load_once();
  return api;
}

CUmemAllocationProp device_memory(int device, bool exportable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

Mapped::Mapped(std::size_t size, bool exportable, int device) : bytes(size) {
  const CUmemAllocationProp properties = device_memory(device, exportable);
  EXPECT_OK(api().cuMemCreate(&handle, bytes, &properties, 0));
  map(device);
}

Mapped::Mapped(CUmemGenericAllocationHandle taken, std::size_t size, int device)
    : handle(taken), bytes(size) {
  map(device);
}

void Mapped::map(int device) {
  EXPECT_OK(api().cuMemAddressReserve(&address, bytes, 0, 0, 0));
  EXPECT_OK(api().cuMemMap(address, bytes, 0, handle, 0));
  const CUmemAccessDesc access = access_of(device);
  EXPECT_OK(api().cuMemSetAccess(address, bytes, &access, 1));
}

Mapped::~Mapped() {
  EXPECT_OK(api().cuMemUnmap(address, bytes));
  EXPECT_OK(api().cuMemAddressFree(address, bytes));
  EXPECT_OK(api().cuMemRelease(handle));
}

std::vector<std::string> kernel_images() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string stem = program.parent_path().parent_path() / "lib/kernels/conformance_kernels";
  return {stem + ".fatbin", stem + ".so"};
}

CUmodule load_kernels() {
  CUmodule module = nullptr;
  for (const std::string& path : kernel_images()) {
    if (::access(path.c_str(), R_OK) != 0) continue;
    if (api().cuModuleLoad(&module, path.c_str()) == CUDA_SUCCESS) return module;
  }
  ADD_FAILURE() << "the driver accepts no image of the kernels";
  return nullptr;
}

CUfunction kernel(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  EXPECT_OK(api().cuModuleGetFunction(&function, module, name));
  return function;
}

std::vector<std::uint32_t> read_words(CUdeviceptr from, std::size_t count) {
  std::vector<std::uint32_t> out(count);
  EXPECT_OK(api().cuMemcpyDtoH_v2(out.data(), from, count * sizeof(std::uint32_t)));
  return out;
}

std::vector<std::uint8_t> read_bytes(CUdeviceptr from, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  EXPECT_OK(api().cuMemcpyDtoH_v2(out.data(), from, count));
  return out;
}

void DriverTest::SetUp() {
  if (load_api() == nullptr) GTEST_SKIP() << "no CUDA driver";
  ASSERT_OK(api().cuInit(0));
  ASSERT_OK(api().cuDeviceGet(&device_, 0));
  ASSERT_OK(api().cuDevicePrimaryCtxRetain(&context_, device_));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
}

void DriverTest::TearDown() {
  if (context_ == nullptr) return;
  EXPECT_OK(api().cuCtxSynchronize());
  EXPECT_OK(api().cuCtxSetCurrent(nullptr));
  EXPECT_OK(api().cuDevicePrimaryCtxRelease_v2(device_));
}

bool DriverTest::two_devices() const {
  int count = 0;
  return api().cuDeviceGetCount(&count) == CUDA_SUCCESS && count >= 2;
}

Gate::Gate(CUstream stream) {
  auto* opened = new std::future<void>(promise_.get_future());
  const CUhostFn wait = [](void* argument) {
    const std::unique_ptr<std::future<void>> future(static_cast<std::future<void>*>(argument));
    future->wait();
  };
  EXPECT_OK(api().cuLaunchHostFunc(stream, wait, opened));
}

void Gate::open() {
  if (!opened_) promise_.set_value();
  opened_ = true;
}

void send_text(int socket, const std::string& text, int fd) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(item), &fd, sizeof fd);
  }
  EXPECT_EQ(static_cast<ssize_t>(text.size()), ::sendmsg(socket, &header, MSG_NOSIGNAL));
}

std::string receive_text(int socket, int* fd) {
  char text[256];
  iovec part{text, sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  const cmsghdr* item = CMSG_FIRSTHDR(&header);
  if (fd != nullptr) *fd = -1;
  if (got > 0 && fd != nullptr && item != nullptr) std::memcpy(fd, CMSG_DATA(item), sizeof *fd);
  return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : "";
}

Child::Child(const std::string& role) {
  int ends[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
  std::string argument = "--role=" + role;
  char name[] = "conformance-child";
  char* arguments[] = {name, argument.data(), nullptr};
  EXPECT_EQ(0, ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  socket_ = ends[0];
}

Child::~Child() {
  if (!waited_) {
    kill();
    wait();
  }
  ::close(socket_);
}

void Child::send_text(const std::string& text, int fd) const {
  conformance::send_text(socket_, text, fd);
}

std::string Child::receive_text(int* fd) const {
  return conformance::receive_text(socket_, fd);
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
}

int Child::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  waited_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::size_t free_memory() {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  EXPECT_OK(api().cuMemGetInfo_v2(&free_bytes, &total));
  return free_bytes;
}

bool comes_back(std::size_t enough) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (free_memory() < enough) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 5);  // no driver sends a notification
  }
  return true;
}

}  // namespace conformance
