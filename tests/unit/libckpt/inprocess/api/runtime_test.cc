// SPDX-License-Identifier: Apache-2.0
// Tests the runtime behind ckpt.h on a software GPU of 64 MiB. The test plays keeper, agent and mover: it
// answers on the socket, and imports the runtime's exports in the same process.
#include <ckpt/ckpt.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "libckpt/cuda/driver.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"
#include "libckpt/inprocess/memory/device_memory.h"

namespace ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMiB = 1 << 20;

const Device& gpu() {
  static const Device device = [] {
    Result<Device> opened = Device::open(0);
    if (!opened.has_value()) {
      std::fprintf(stderr, "%s\n", opened.error().to_string().c_str());
      std::abort();
    }
    return *std::move(opened);
  }();
  return device;
}

std::vector<std::uint8_t> device_bytes(CUdeviceptr pointer, std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  EXPECT_EQ(gpu().api().cuMemcpyDtoH_v2(out.data(), pointer, bytes), CUDA_SUCCESS);
  return out;
}

void fill(CUdeviceptr pointer, std::uint8_t value, std::size_t bytes) {
  EXPECT_EQ(gpu().api().cuMemsetD8_v2(pointer, value, bytes), CUDA_SUCCESS);
  EXPECT_EQ(gpu().api().cuCtxSynchronize(), CUDA_SUCCESS);
}

class RuntimeTest : public ::testing::Test {
 protected:
  RuntimeTest() : scope_(gpu()) {
    std::string path = (fs::temp_directory_path() / "ckpt-runtime-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
    ::setenv("CKPT_SOCKET", (folder_ + "/keeper.sock").c_str(), 1);
  }
  ~RuntimeTest() override {
    if (session_ != nullptr) {
      EXPECT_EQ(ckpt_shutdown(session_), CKPT_OK);
    }
    fs::remove_all(folder_);
  }

  // Runs ckpt_init on this thread, with its keeper on another thread.
  void begin(local::Role role, std::uint32_t flags = 0) {
    local::Listener listener = std::move(*local::Listener::create(folder_ + "/keeper.sock"));
    page_ = std::move(*local::ControlPageMapping::create());
    std::thread keeper([&] {
      pollfd watched{listener.fd(), POLLIN, 0};
      ::poll(&watched, 1, -1);
      keeper_ = std::move(**listener.accept());
      ASSERT_TRUE(keeper_.set_blocking(true).has_value());
      ASSERT_TRUE(std::holds_alternative<local::Hello>(keeper_.receive()->message.body));
      local::Welcome welcome;
      welcome.role = role;
      welcome.incarnation = 1;
      const int fd = page_->fd();
      ASSERT_TRUE(keeper_.send({0, 0, welcome}, std::span(&fd, 1)).has_value());
    });
    const ckpt_options options{CKPT_ABI_VERSION, flags};
    ckpt_role got{};
    EXPECT_EQ(ckpt_init(&options, &session_, &got), CKPT_OK) << ckpt_last_error();
    keeper.join();
    EXPECT_EQ(got, role == local::Role::kStandby ? CKPT_ROLE_STANDBY : CKPT_ROLE_FRESH);
  }

  void send(std::uint64_t request, local::Body body, int fd = -1) {
    ASSERT_TRUE(
        keeper_.send({0, request, std::move(body)}, std::span<const int>(&fd, fd >= 0 ? 1 : 0)).has_value());
  }

  // Receives the next message, which must be a T.
  template <class T>
  T next() {
    pollfd watched{keeper_.fd(), POLLIN, 0};
    if (::poll(&watched, 1, 60'000) != 1) {
      ADD_FAILURE() << "no message came";
      return {};
    }
    Result<local::Received> received = keeper_.receive();
    if (!received.has_value()) {
      ADD_FAILURE() << received.error().to_string();
      return {};
    }
    fds_ = std::move(received->descriptors);
    request_ = received->message.request;
    local::Body& body = received->message.body;
    if (const auto* failed = std::get_if<local::Failed>(&body);
        failed != nullptr && !std::is_same_v<T, local::Failed>) {
      ADD_FAILURE() << failed->text.view();
    }
    T* wanted = std::get_if<T>(&body);
    EXPECT_NE(wanted, nullptr) << "got " << to_string(type_of(body));
    return wanted == nullptr ? T{} : std::move(*wanted);
  }

  CUdeviceptr allocate(std::size_t bytes) {
    ckpt_devptr pointer = 0;
    EXPECT_EQ(ckpt_alloc(session_, bytes, &pointer), CKPT_OK) << ckpt_last_error();
    return pointer;
  }
  ckpt_status name(const char* name, CUdeviceptr pointer, std::uint64_t bytes,
                   ckpt_kind kind = CKPT_PARAMETER) {
    return ckpt_tensor(session_, name, pointer, bytes, CKPT_U8, 1, &bytes, kind);
  }
  void ready_fresh() {
    ckpt_start start{};
    ASSERT_EQ(ckpt_ready(session_, &start), CKPT_OK) << ckpt_last_error();
    EXPECT_EQ(start, CKPT_FRESH);
    next<local::Ready>();
  }

  // Runs the program's loop on another thread until `stop` is set.
  std::thread loop(std::atomic<bool>& stop, ckpt_status& end) {
    return std::thread([this, &stop, &end] {
      const ContextScope scope(gpu());
      end = CKPT_OK;
      while (!stop && end == CKPT_OK) end = ckpt_barrier(session_);
    });
  }

  ContextScope scope_;
  std::string folder_;
  ckpt_session* session_ = nullptr;
  local::Socket keeper_;
  std::optional<local::ControlPageMapping> page_;
  std::vector<UniqueFd> fds_;
  std::uint64_t request_ = 0;
};

TEST_F(RuntimeTest, TensorsAndRegionsAreDescribed) {
  begin(local::Role::kFresh);
  const CUdeviceptr a = allocate(3 * kMiB);
  ASSERT_EQ(name("a", a, kMiB), CKPT_OK);
  ASSERT_EQ(name("a.view", a + 4096, 4096), CKPT_OK);
  ASSERT_EQ(name("scratch", a + 2 * kMiB, kMiB, CKPT_SCRATCH), CKPT_OK);
  send(5, local::Describe{});
  const auto tensors = next<local::Tensors>();
  ASSERT_EQ(tensors.records.size(), 3u);
  EXPECT_EQ(tensors.records[0].name.view(), "a");
  EXPECT_EQ(tensors.records[1].offset, 4096u);
  const auto regions = next<local::Regions>();
  ASSERT_EQ(regions.records.size(), 1u);
  EXPECT_EQ(regions.records[0].bytes, 4 * kMiB) << "rounded up to the granularity";
  EXPECT_EQ(regions.records[0].id, tensors.records[0].region);
  CUuuid uuid{};
  ASSERT_EQ(gpu().api().cuDeviceGetUuid_v2(&uuid, gpu().device()), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(regions.records[0].device_uuid.data(), uuid.bytes, 16), 0);
  const local::StateSummary summary = next<local::DescribeEnd>().summary;
  EXPECT_EQ(request_, 5u);
  EXPECT_EQ(summary.state_bytes, kMiB);
  EXPECT_EQ(summary.movable, 1u);
  EXPECT_EQ(summary.ready, 0u);
}

TEST_F(RuntimeTest, PartialOverlapAndDuplicateNamesAreRefused) {
  begin(local::Role::kFresh);
  const CUdeviceptr a = allocate(2 * kMiB);
  ASSERT_EQ(name("a", a, 8192), CKPT_OK);
  EXPECT_EQ(name("a", a + 8192, 8192), CKPT_ERROR_INVALID);
  EXPECT_EQ(name("b", a + 4096, 8192), CKPT_ERROR_INVALID);
  EXPECT_NE(std::strstr(ckpt_last_error(), "'a'"), nullptr);
  EXPECT_NE(std::strstr(ckpt_last_error(), "'b'"), nullptr);
  EXPECT_EQ(ckpt_free(session_, a), CKPT_ERROR_INVALID) << "a tensor lies in it";
  EXPECT_EQ(ckpt_drop(session_, "a"), CKPT_OK);
  EXPECT_EQ(ckpt_free(session_, a), CKPT_OK) << ckpt_last_error();
  EXPECT_EQ(ckpt_free(session_, a), CKPT_ERROR_INVALID);
}

TEST_F(RuntimeTest, ExportedMemoryIsTheMemoryOfTheProgram) {
  begin(local::Role::kFresh);
  const CUdeviceptr a = allocate(2 * kMiB);
  ASSERT_EQ(name("a", a, 2 * kMiB), CKPT_OK);
  fill(a, 0x11, 2 * kMiB);
  ready_fresh();
  send(9, local::Export{});
  EXPECT_EQ(next<local::Tensors>().records.size(), 1u);
  const auto batch = next<local::ExportBatch>();
  ASSERT_EQ(fds_.size(), 1u);
  Result<ImportedMemory> imported =
      ImportedMemory::import(gpu().api(), gpu().device(), fds_[0].get(), batch.records[0].bytes);
  ASSERT_TRUE(imported.has_value()) << imported.error().to_string();
  fds_.clear();
  send(9, local::ExportAck{batch.sequence});
  EXPECT_EQ(next<local::ExportEnd>().summary.ready, 1u);
  EXPECT_EQ(device_bytes(imported->pointer(), 4096), std::vector<std::uint8_t>(4096, 0x11));
  fill(a, 0x22, 2 * kMiB);
  EXPECT_EQ(device_bytes(imported->pointer(), 4096), std::vector<std::uint8_t>(4096, 0x22));

  // The runtime reports all regions that are added or removed from this point on.
  const CUdeviceptr b = allocate(2 * kMiB);
  const auto added = next<local::ExportBatch>();
  EXPECT_EQ(request_, 9u);
  ASSERT_EQ(added.records.size(), 1u);
  EXPECT_GT(added.records[0].id, batch.records[0].id);
  send(9, local::ExportAck{added.sequence});
  ASSERT_EQ(name("b", b, 4096), CKPT_OK);
  EXPECT_EQ(next<local::Tensors>().records[0].region, added.records[0].id);
  ASSERT_EQ(ckpt_drop(session_, "b"), CKPT_OK);
  EXPECT_EQ(next<local::TensorDropped>().name.view(), "b");
  ASSERT_EQ(ckpt_free(session_, b), CKPT_OK);
  EXPECT_EQ(next<local::RegionFreed>().id, added.records[0].id);
}

TEST_F(RuntimeTest, ManyRegionsAreExportedInBatches) {
  begin(local::Role::kFresh);
  // The device has 64 MiB: 30 regions of 2 MiB. export_stream_test tests the batch size; this test checks the
  // descriptors.
  for (int i = 0; i < 20; ++i) allocate(2 * kMiB);
  send(9, local::Export{});
  const auto batch = next<local::ExportBatch>();
  EXPECT_EQ(batch.records.size(), 20u);
  EXPECT_EQ(fds_.size(), 20u);
  send(9, local::ExportAck{batch.sequence});
  next<local::ExportEnd>();
}

TEST_F(RuntimeTest, AllocationWaitsForFreedMemoryHeldByTheMover) {
  begin(local::Role::kFresh);
  const CUdeviceptr a = allocate(40 * kMiB);
  send(9, local::Export{});
  const auto batch = next<local::ExportBatch>();
  ASSERT_EQ(fds_.size(), 1u);
  std::optional<ImportedMemory> mover;
  {
    Result<ImportedMemory> imported =
        ImportedMemory::import(gpu().api(), gpu().device(), fds_[0].get(), batch.records[0].bytes);
    ASSERT_TRUE(imported.has_value()) << imported.error().to_string();
    mover.emplace(*std::move(imported));
  }
  fds_.clear();
  send(9, local::ExportAck{batch.sequence});
  next<local::ExportEnd>();
  ASSERT_EQ(ckpt_free(session_, a), CKPT_OK);
  const auto freed = next<local::RegionFreed>();

  // The "mover" still maps 40 of 64 MiB: without ENG-7 this allocation fails.
  ckpt_status status = CKPT_ERROR_INVALID;
  std::atomic<bool> begun{false};
  std::thread program([&] {
    const ContextScope scope(gpu());
    ckpt_devptr again = 0;
    begun = true;
    begun.notify_all();
    status = ckpt_alloc(session_, 40 * kMiB, &again);
  });
  // The wait cannot be observed from outside. A build that does not wait has failed by the time these
  // requests are answered.
  begun.wait(false);
  for (int i = 0; i < 200; ++i) {
    send(3, local::Describe{});
    next<local::DescribeEnd>();
  }
  mover.reset();
  send(9, local::RegionFreedAck{freed.id, freed.generation});
  program.join();
  EXPECT_EQ(status, CKPT_OK) << ckpt_last_error();
}

TEST_F(RuntimeTest, OutOfMemoryIsReportedIfTheMoverHoldsNoMemory) {
  begin(local::Role::kFresh);
  ckpt_devptr pointer = 0;
  EXPECT_EQ(ckpt_alloc(session_, 1024 * kMiB, &pointer), CKPT_ERROR_MEMORY);
}

TEST_F(RuntimeTest, SourceCanBePausedAndResumed) {
  begin(local::Role::kFresh);
  std::uint64_t step = 77;
  ASSERT_EQ(ckpt_host_state(session_, "step", &step, sizeof step), CKPT_OK);
  ready_fresh();
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  for (std::uint64_t request = 20; request < 23; ++request) {
    page_->ask_pause(request);
    const auto paused = next<local::Paused>();
    EXPECT_EQ(request_, request);
    EXPECT_LE(paused.barrier_entry_ns, paused.quiesced_ns);
    page_->withdraw_pause();
    send(9, local::Describe{});  // answered while the program is paused
    next<local::DescribeEnd>();
    send(request, local::Resume{4, 0, 0});
    const auto running = next<local::Running>();
    EXPECT_EQ(running.incarnation, 4u);
    EXPECT_GE(running.resumed_ns, paused.quiesced_ns);
  }
  stop = true;
  program.join();
  EXPECT_EQ(end, CKPT_OK);
}

TEST_F(RuntimeTest, TableChangesWaitForTheEndOfThePause) {
  begin(local::Role::kFresh);
  ready_fresh();
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  page_->ask_pause(20);
  next<local::Paused>();
  page_->withdraw_pause();
  std::atomic<bool> resumed{false};
  bool too_early = false;
  std::thread other([&] {
    const ContextScope scope(gpu());
    allocate(2 * kMiB);
    too_early = !resumed;
  });
  send(9, local::Describe{});
  EXPECT_EQ(next<local::DescribeEnd>().summary.regions, 0u);
  resumed = true;
  send(20, local::Resume{1, 0, 0});
  next<local::Running>();
  other.join();
  EXPECT_FALSE(too_early);
  stop = true;
  program.join();
}

// Runs one whole move in one process: a source session, then a standby session that receives the source's
// host state.
TEST_F(RuntimeTest, HostStateAndPlainMemoryMoveToAStandby) {
  begin(local::Role::kFresh);
  const DriverApi& api = gpu().api();
  CUdeviceptr plain = 0;
  ASSERT_EQ(api.cuMemAlloc_v2(&plain, 8192), CUDA_SUCCESS);
  std::uint64_t step = 12;
  ASSERT_EQ(ckpt_host_state(session_, "step", &step, sizeof step), CKPT_OK);
  ASSERT_EQ(name("plain", plain, 8192), CKPT_OK) << ckpt_last_error();
  fill(plain, 0x5c, 8192);
  ready_fresh();
  send(3, local::Describe{});
  EXPECT_EQ(next<local::Tensors>().records[0].region, local::kNoRegion);
  EXPECT_EQ(next<local::DescribeEnd>().summary.unexportable_bytes, 8192u);
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  page_->ask_pause(20);
  const auto paused = next<local::Paused>();
  ASSERT_EQ(fds_.size(), 1u);
  const UniqueFd state = std::move(fds_[0]);
  page_->withdraw_pause();
  stop = true;
  send(20, local::Resume{1, 0, 0});
  next<local::Running>();
  program.join();
  ASSERT_EQ(ckpt_shutdown(session_), CKPT_OK);

  session_ = nullptr;
  step = 0;
  fill(plain, 0, 8192);
  begin(local::Role::kStandby);
  ASSERT_EQ(ckpt_host_state(session_, "step", &step, sizeof step), CKPT_OK);
  ASSERT_EQ(name("plain", plain, 8192), CKPT_OK);
  ckpt_start start{};
  ckpt_status status = CKPT_ERROR_INVALID;
  std::thread standby([&] {
    const ContextScope scope(gpu());
    status = ckpt_ready(session_, &start);
  });
  next<local::StandbyReady>();
  send(30, local::Resume{2, 0, paused.host_state_bytes}, state.get());
  EXPECT_EQ(next<local::Running>().incarnation, 2u);
  standby.join();
  EXPECT_EQ(status, CKPT_OK);
  EXPECT_EQ(start, CKPT_RESUMED);
  EXPECT_EQ(step, 12u);
  EXPECT_EQ(device_bytes(plain, 8192), std::vector<std::uint8_t>(8192, 0x5c));
  api.cuMemFree_v2(plain);
}

TEST_F(RuntimeTest, TooMuchPlainMemoryMakesTheJobUnmovableWithAReason) {
  begin(local::Role::kFresh);
  // Tensors are names of ranges. The limit counts tensors without access to their memory, including tied
  // names.
  CUdeviceptr plain = 0;
  ASSERT_EQ(gpu().api().cuMemAlloc_v2(&plain, 24 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(name("one", plain, 24 * kMiB), CKPT_OK);
  ASSERT_EQ(name("two", plain, 24 * kMiB), CKPT_OK);
  ASSERT_EQ(name("three", plain, 24 * kMiB), CKPT_OK);
  ready_fresh();
  send(3, local::Describe{});
  next<local::Tensors>();
  const local::StateSummary summary = next<local::DescribeEnd>().summary;
  EXPECT_EQ(summary.movable, 0u);
  EXPECT_NE(summary.reason.view().find("ckpt_alloc"), std::string_view::npos);
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  page_->ask_pause(20);
  EXPECT_EQ(next<local::Failed>().refused_type, static_cast<std::uint32_t>(local::MessageType::kPause));
  program.join();
  EXPECT_EQ(end, CKPT_ERROR_LIMIT) << "the program hears it, once, and may go on";
  EXPECT_EQ(ckpt_barrier(session_), CKPT_OK);
  gpu().api().cuMemFree_v2(plain);
}

TEST_F(RuntimeTest, MemoryMappedByTheProgramCanBeExported) {
  begin(local::Role::kFresh);
  Result<DeviceMemory> own = DeviceMemory::create(gpu().api(), gpu().device(), 2 * kMiB);
  ASSERT_TRUE(own.has_value()) << own.error().to_string();
  const CUdeviceptr pointer = own->pointer();
  ASSERT_EQ(name("first", pointer, 4096), CKPT_OK);
  ASSERT_EQ(name("second", pointer + 4096, 4096), CKPT_OK);
  send(3, local::Export{});
  const auto tensors = next<local::Tensors>();
  EXPECT_NE(tensors.records[0].region, local::kNoRegion);
  EXPECT_EQ(tensors.records[0].region, tensors.records[1].region);
  const auto batch = next<local::ExportBatch>();
  ASSERT_EQ(batch.records.size(), 1u);
  send(3, local::ExportAck{batch.sequence});
  next<local::ExportEnd>();
  ASSERT_EQ(ckpt_drop(session_, "first"), CKPT_OK);
  next<local::TensorDropped>();
  ASSERT_EQ(ckpt_drop(session_, "second"), CKPT_OK);
  next<local::TensorDropped>();
  EXPECT_EQ(next<local::RegionFreed>().id, batch.records[0].id) << "with its last tensor";
}

TEST_F(RuntimeTest, MovedStatusIsReturnedIfRequested) {
  begin(local::Role::kFresh, CKPT_OPTION_RETURN_MOVED);
  ready_fresh();
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  page_->ask_pause(20);
  next<local::Paused>();
  send(21, local::Moved{});
  program.join();
  EXPECT_EQ(end, CKPT_MOVED);
}

TEST_F(RuntimeTest, ProcessEndsAfterItsMoveWithoutAtexitHandlers) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        begin(local::Role::kFresh);
        ready_fresh();
        std::atexit([] { ::_exit(9); });
        std::atomic<bool> stop{false};
        ckpt_status end = CKPT_OK;
        std::thread program = loop(stop, end);
        page_->ask_pause(20);
        next<local::Paused>();
        send(21, local::Moved{});
        program.join();
        ::_exit(8);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(RuntimeTest, LossOfTheKeeperEndsTheProcess) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        begin(local::Role::kFresh);
        ready_fresh();
        keeper_.close();
        for (;;) ::pause();
      },
      ::testing::KilledBySignal(SIGKILL), "lost the keeper");
}

ckpt_status reentrant_save(void* user, ckpt_writer* writer) {
  auto* session = static_cast<ckpt_session*>(user);
  if (ckpt_drop(session, "anything") != CKPT_ERROR_INVALID) return CKPT_ERROR_LIMIT;
  return ckpt_write(writer, "x", 1);
}
ckpt_status ignore_load(void*, const void*, size_t) {
  return CKPT_OK;
}

TEST_F(RuntimeTest, CallbackThatUsesTheSessionDoesNotHang) {
  begin(local::Role::kFresh);
  ASSERT_EQ(ckpt_host_callbacks(session_, "state", reentrant_save, ignore_load, session_), CKPT_OK);
  ready_fresh();
  std::atomic<bool> stop{false};
  ckpt_status end = CKPT_ERROR_INVALID;
  std::thread program = loop(stop, end);
  page_->ask_pause(20);
  next<local::Paused>();
  page_->withdraw_pause();
  stop = true;
  send(20, local::Resume{1, 0, 0});
  next<local::Running>();
  program.join();
  EXPECT_EQ(end, CKPT_OK);
}

}  // namespace
}  // namespace ckpt
