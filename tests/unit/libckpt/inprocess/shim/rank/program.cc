// SPDX-License-Identifier: Apache-2.0
// A CUDA program that does not know gpumigrate. It writes, copies and checks buffers of many sizes, step by
// step, and allocates and frees memory, until the file in argv[1] exists. If argv[2] is "asks", the program
// only initializes the driver. If argv[2] is "beside", the program starts such a process next to itself. Any
// other argv[2] is a file: the GPU first waits for a host function that waits for this file. Exit codes: 0
// success, 3 a byte was wrong, 4 the driver refused a call.
#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void* g_driver = nullptr;

template <class Function>
Function* named(const char* name) {
  auto* function = reinterpret_cast<Function*>(::dlsym(g_driver, name));
  if (function == nullptr) {
    std::printf("no %s: %s\n", name, ::dlerror());
    std::exit(4);
  }
  return function;
}

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", what, static_cast<int>(result));
  std::exit(4);
}

struct Driver {
  decltype(cuInit)* init = named<decltype(cuInit)>("cuInit");
  decltype(cuDevicePrimaryCtxRetain)* retain =
      named<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(cuCtxSetCurrent)* set = named<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  decltype(cuMemAlloc_v2)* alloc = named<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2");
  decltype(cuMemFree_v2)* free = named<decltype(cuMemFree_v2)>("cuMemFree_v2");
  decltype(cuMemcpyHtoD_v2)* up = named<decltype(cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2");
  decltype(cuMemcpyDtoH_v2)* down = named<decltype(cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  decltype(cuMemcpyDtoD_v2)* across = named<decltype(cuMemcpyDtoD_v2)>("cuMemcpyDtoD_v2");
  decltype(cuCtxSynchronize)* synchronize = named<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
  decltype(cuLaunchHostFunc)* call_host = named<decltype(cuLaunchHostFunc)>("cuLaunchHostFunc");
};

constexpr std::size_t kSizes[] = {1, 700, 4096, 100'000, 2 << 20, (2 << 20) + 1, 5'000'000};

unsigned char pattern(std::size_t buffer, unsigned step, std::size_t at) {
  return static_cast<unsigned char>(buffer * 31 + step * 7 + at * 13 + 1);
}

void check(const Driver& driver, CUdeviceptr pointer, std::size_t buffer, unsigned step) {
  std::vector<unsigned char> bytes(kSizes[buffer]);
  must(driver.down(bytes.data(), pointer, bytes.size()), "cuMemcpyDtoH");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == pattern(buffer, step, at)) continue;
    std::printf("step %u, buffer %zu, byte %zu is wrong\n", step, buffer, at);
    std::exit(3);
  }
}

void wait_for_end(const char* path) {
  while (::access(path, F_OK) != 0) ::poll(nullptr, 0, 1);
}

void CUDA_CB wait_for_file(void* path) {
  wait_for_end(static_cast<const char*>(path));
}

// Checks the data of the previous step, moves the data to new memory, and writes new data.
void run_step(const Driver& driver, std::vector<CUdeviceptr>& buffers, unsigned step) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    CUdeviceptr fresh = 0;
    must(driver.alloc(&fresh, kSizes[i]), "cuMemAlloc");
    must(driver.across(fresh, buffers[i], kSizes[i]), "cuMemcpyDtoD");
    check(driver, fresh, i, step);
    must(driver.free(fresh), "cuMemFree");
    std::vector<unsigned char> bytes(kSizes[i]);
    for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = pattern(i, step + 1, at);
    must(driver.up(buffers[i], bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }
}

int ask_only(const char* stop_file) {
  must(named<decltype(cuInit)>("cuInit")(0), "cuInit");
  std::printf("asked\n");
  wait_for_end(stop_file);
  return 0;
}

void start_beside(char** argv) {
  char asks[] = "asks";
  char* words[] = {argv[0], argv[1], asks, nullptr};
  if (::fork() == 0) ::_exit(::execv("/proc/self/exe", words));
}

}  // namespace

int main(int argc, char** argv) {
  ::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 2) return 64;
  g_driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) {
    std::printf("%s\n", ::dlerror());
    return 4;
  }
  const std::string life = argc > 2 ? argv[2] : "";
  if (life == "asks") return ask_only(argv[1]);
  if (life == "beside") start_beside(argv);
  const Driver driver;
  must(driver.init(0), "cuInit");
  CUcontext context = nullptr;
  must(driver.retain(&context, 0), "cuDevicePrimaryCtxRetain");
  must(driver.set(context), "cuCtxSetCurrent");
  std::vector<CUdeviceptr> buffers(sizeof kSizes / sizeof kSizes[0]);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    must(driver.alloc(&buffers[i], kSizes[i]), "cuMemAlloc");
    std::vector<unsigned char> bytes(kSizes[i]);
    for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = pattern(i, 0, at);
    must(driver.up(buffers[i], bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }
  std::printf("ready\n");
  if (!life.empty() && life != "beside") {
    must(driver.call_host(nullptr, wait_for_file, argv[2]), "cuLaunchHostFunc");
    std::printf("stuck\n");
    must(driver.synchronize(), "cuCtxSynchronize");
  }
  unsigned step = 0;
  for (; ::access(argv[1], F_OK) != 0; ++step) run_step(driver, buffers, step);
  std::printf("%u steps\n", step);
  return 0;
}
