// SPDX-License-Identifier: Apache-2.0
// The process that the checkpoint tests stop and restore. It obeys orders on its socket and checks itself.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/conformance/checkpoint/checkpoint_work.h"
#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

constexpr std::size_t kPlain = 64 * kMiB;
constexpr std::size_t kRegion = 4 * kMiB;
constexpr std::uint32_t kWords = 4096;

class Job {
 public:
  explicit Job(int socket) : socket_(socket) {}

  bool start() {
    if (load_api() == nullptr || api().cuInit(0) != CUDA_SUCCESS) return false;
    EXPECT_OK(api().cuDevicePrimaryCtxRetain(&context_, 0));
    EXPECT_OK(api().cuCtxSetCurrent(context_));
    module_ = load_kernels();
    load_library();
    EXPECT_OK(api().cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * kMiB));
    EXPECT_OK(api().cuCtxGetLimit(&heap_limit_, CU_LIMIT_MALLOC_HEAP_SIZE));
    EXPECT_GE(heap_limit_, 32 * kMiB);
    EXPECT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(api().cuEventCreate(&event_, CU_EVENT_DEFAULT));
    EXPECT_OK(api().cuMemAlloc_v2(&plain_, kPlain));
    EXPECT_OK(api().cuMemAlloc_v2(&small_, 256));
    EXPECT_OK(api().cuMemsetD8_v2(small_, 0x3c, 256));
    EXPECT_OK(launch(kernel(module_, "fill"), 8, 64, stream_, std::uint64_t{plain_}, std::uint32_t{7},
                     std::uint64_t{kPlain / 4}));
    EXPECT_OK(api().cuMemHostAlloc(reinterpret_cast<void**>(&pinned_), kMiB, 0));
    std::memset(pinned_, 0x44, kMiB);
    register_file();
    EXPECT_OK(api().cuMemAllocAsync(&pooled_, 8192, stream_));
    EXPECT_OK(api().cuMemsetD8Async(pooled_, 0x2d, 8192, stream_));
    make_graph();
    EXPECT_OK(api().cuModuleGetGlobal_v2(&launches_, nullptr, module_, "launches"));
    EXPECT_OK(api().cuEventRecord(event_, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    check();
    return !testing::Test::HasFailure();
  }

  void load_library() {
    for (const std::string& path : kernel_images()) {
      if (library_ != nullptr) break;
      api().cuLibraryLoadFromFile(&library_, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    }
    EXPECT_OK(api().cuLibraryGetKernel(&library_count_, library_, "count_launch"));
    EXPECT_OK(api().cuLibraryGetGlobal(&library_launches_, nullptr, library_, "launches"));
  }

  void register_file() {
    const int file = ::memfd_create("conformance", MFD_CLOEXEC);
    EXPECT_EQ(0, ::ftruncate(file, kMiB));
    void* at = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    registered_ = static_cast<std::uint8_t*>(at);
    EXPECT_OK(api().cuMemHostRegister_v2(registered_, kMiB, 0));
    ::close(file);
    std::memset(registered_, 0x77, kMiB);
  }

  // Creates a graph with one counted launch.
  void make_graph() {
    CUgraph graph = nullptr;
    EXPECT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(launch(kernel(module_, "count_launch"), 1, 1, stream_));
    EXPECT_OK(api().cuStreamEndCapture(stream_, &graph));
    EXPECT_OK(api().cuGraphInstantiateWithFlags(&graph_, graph, 0));
    EXPECT_OK(api().cuGraphDestroy(graph));
  }

  // Checks that all objects made before are present, at the same addresses, and work. Each call adds two
  // launches.
  void check() {
    EXPECT_EQ(7U + 1000, read_words(plain_ + 4000, 1)[0]);
    EXPECT_EQ(7U + kPlain / 4 - 1, read_words(plain_ + kPlain - 4, 1)[0]);
    EXPECT_EQ(std::vector<std::uint8_t>(256, 0x3c), read_bytes(small_, 256));
    EXPECT_OK(api().cuEventQuery(event_));
    EXPECT_OK(launch(kernel(module_, "count_launch"), 1, 1, stream_));
    EXPECT_OK(api().cuGraphLaunch(graph_, stream_));
    EXPECT_OK(api().cuEventRecord(event_, stream_));
    EXPECT_OK(api().cuEventSynchronize(event_));
    expected_launches_ += 2;
    EXPECT_EQ(expected_launches_, read_words(launches_, 1)[0]);
    EXPECT_OK(launch(reinterpret_cast<CUfunction>(library_count_), 1, 1, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(expected_launches_ / 2, read_words(library_launches_, 1)[0]);
    std::size_t limit = 0;
    EXPECT_OK(api().cuCtxGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE));
    EXPECT_EQ(heap_limit_, limit);
    EXPECT_EQ(std::vector<std::uint8_t>(8192, 0x2d), read_bytes(pooled_, 8192));
    EXPECT_EQ(0x44, pinned_[0]);
    EXPECT_EQ(0x44, pinned_[kMiB - 1]);
    CUdeviceptr device = 0;
    EXPECT_OK(api().cuMemHostGetDevicePointer_v2(&device, pinned_, 0));
    EXPECT_OK(launch(kernel(module_, "fill"), 1, 32, stream_, std::uint64_t{device} + 64, expected_launches_,
                     std::uint64_t{1}));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    std::uint32_t written = 0;
    std::memcpy(&written, pinned_ + 64, sizeof written);
    EXPECT_EQ(expected_launches_, written);
    EXPECT_EQ(0x77, registered_[kMiB - 1]);
    EXPECT_OK(api().cuMemcpyDtoHAsync_v2(registered_, small_, 256, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(0x3c, registered_[255]);
    registered_[255] = 0;
    if (mapped_) {
      EXPECT_EQ(50U + kWords - 1, read_words(region_ + 4 * (kWords - 1), 1)[0]);
    }
    CUdeviceptr more = 0;
    EXPECT_OK(api().cuMemAlloc_v2(&more, kMiB));
    EXPECT_OK(api().cuMemsetD8_v2(more, 1, kMiB));
    EXPECT_OK(api().cuMemFree_v2(more));
  }

  void map_region() {
    if (region_ == 0) {
      EXPECT_OK(api().cuMemAddressReserve(&region_, kRegion, 0, 0, 0));
    }
    EXPECT_OK(api().cuMemMap(region_, kRegion, 0, handle_, 0));
    const CUmemAccessDesc access = access_of(0);
    EXPECT_OK(api().cuMemSetAccess(region_, kRegion, &access, 1));
    mapped_ = true;
  }
  void make_region() {
    const CUmemAllocationProp properties = device_memory(0, true);
    EXPECT_OK(api().cuMemCreate(&handle_, kRegion, &properties, 0));
    map_region();
    EXPECT_OK(launch(kernel(module_, "fill"), 1, 32, nullptr, std::uint64_t{region_}, std::uint32_t{50},
                     std::uint64_t{kWords}));
    EXPECT_OK(api().cuCtxSynchronize());
  }
  int export_region() {
    int fd = -1;
    EXPECT_OK(api().cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
  }
  void release_region() {
    EXPECT_OK(api().cuMemUnmap(region_, kRegion));
    EXPECT_OK(api().cuMemRelease(handle_));
    mapped_ = false;
  }
  void import_region(int fd) {
    void* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
    EXPECT_OK(
        api().cuMemImportFromShareableHandle(&handle_, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ::close(fd);
    map_region();
  }
  // Creates memory of the first device that a context of the second device uses.
  void use_peer() {
    CUcontext second = nullptr;
    EXPECT_OK(api().cuDevicePrimaryCtxRetain(&second, 1));
    EXPECT_OK(api().cuCtxPushCurrent_v2(second));
    const CUresult enabled = api().cuCtxEnablePeerAccess(context_, 0);
    EXPECT_TRUE(enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) << enabled;
    const CUmodule module = load_kernels();
    EXPECT_OK(launch(kernel(module, "add_one"), 1, 64, nullptr, std::uint64_t{peer_}, std::uint64_t{64}));
    EXPECT_OK(api().cuCtxSynchronize());
    EXPECT_OK(api().cuModuleUnload(module));
    EXPECT_OK(api().cuCtxPopCurrent_v2(nullptr));
    EXPECT_EQ(++expected_peer_, read_words(peer_ + 4 * 63, 1)[0]);
  }
  void make_peer() {
    EXPECT_OK(api().cuMemAlloc_v2(&peer_, 4096));
    EXPECT_OK(api().cuMemsetD8_v2(peer_, 0, 4096));
    use_peer();
  }
  // Starts a thread that counts in pinned memory without a pause, whatever happens to the driver meanwhile.
  void start_counting() {
    counter_ = std::thread([this] {
      auto* word = reinterpret_cast<volatile std::uint64_t*>(pinned_ + 4096);
      *word = 0;
      for (counted_ = 0; !stop_counting_; counted_++) *word = *word + 1;
    });
  }
  void end_counting() {
    stop_counting_ = true;
    counter_.join();
    EXPECT_EQ(counted_, *reinterpret_cast<volatile std::uint64_t*>(pinned_ + 4096));
  }

  // Forks a child that inherits everything and does nothing.
  static void fork_a_child() {
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }

  // Carries out an order. Returns false for an unknown order.
  bool obey(const std::string& order, int fd) {
    if (order == "check")
      check();
    else if (order == "make region")
      make_region();
    else if (order == "export")
      exported_ = export_region();
    else if (order == "close export")
      ::close(exported_);
    else if (order == "release")
      release_region();
    else if (order == "import")
      import_region(fd);
    else if (order == "hold up")
      gate_ = std::make_unique<Gate>(stream_);
    else if (order == "let go")
      gate_.reset();
    else if (order == "count")
      start_counting();
    else if (order == "stop counting")
      end_counting();
    else if (order == "make peer")
      make_peer();
    else if (order == "use peer")
      use_peer();
    else if (order == "work")
      workers_ = std::make_unique<Workers>(6);
    else if (order == "stop working")
      EXPECT_GT(workers_->stop(), 0U);
    else if (order == "fork")
      fork_a_child();
    else
      return false;
    return true;
  }

  void serve() {
    for (;;) {
      int fd = -1;
      const std::string order = receive_text(socket_, &fd);
      if (order.empty()) return;
      const bool known = obey(order, fd);
      send_text(socket_, known && !testing::Test::HasFailure() ? "ok" : "failed",
                order == "export" ? exported_ : -1);
    }
  }

 private:
  int socket_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel library_count_ = nullptr;
  CUdeviceptr library_launches_ = 0;
  std::size_t heap_limit_ = 0;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr plain_ = 0;
  CUdeviceptr small_ = 0;
  CUdeviceptr peer_ = 0;
  std::uint32_t expected_peer_ = 0;
  CUdeviceptr pooled_ = 0;
  CUgraphExec graph_ = nullptr;
  CUdeviceptr launches_ = 0;
  CUdeviceptr region_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool mapped_ = false;
  int exported_ = -1;
  unsigned char* pinned_ = nullptr;
  std::uint8_t* registered_ = nullptr;  // registered memory of a memory file
  std::uint32_t expected_launches_ = 0;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Workers> workers_;
  std::thread counter_;
  std::atomic<bool> stop_counting_{false};
  std::uint64_t counted_ = 0;
};

}  // namespace

int checkpoint_job(int socket) {
  Job job(socket);
  send_text(socket, job.start() ? "ok" : "failed");
  job.serve();
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace conformance
