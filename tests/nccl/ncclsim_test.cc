// SPDX-License-Identifier: Apache-2.0
// What only the software NCCL does: ranks that disagree find out, faults on order, and how it connects.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"
#include "tools/ncclsim/transport/bootstrap_wire.h"

namespace nccl_test {
namespace {

constexpr std::size_t kCount = 64;

class NcclsimTest : public RanksTest {
 protected:
  bool begin(int ranks, const RankOptions& options = {}) {
    if (!as_rank(ranks, options)) return false;
    communicator_ = init();
    return communicator_ != nullptr;
  }
  ncclResult_t all_reduce(std::size_t count = kCount, ncclDataType_t type = ncclInt32,
                          ncclRedOp_t operation = ncclSum) {
    return nccl().ncclAllReduce(data(), data(), count, type, operation, communicator_, stream_);
  }
  void* data() {
    if (data_ == nullptr) data_ = std::make_unique<Buffer<std::int32_t>>(4 * kCount, 1);
    return data_->get();
  }
  void sync() { ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_)); }
  void expect_error(ncclResult_t expected, const std::string& text) {
    EXPECT_EQ(expected, first_error(communicator_));
    EXPECT_NE(std::string::npos, last_error().find(text)) << last_error();
  }
  void end() {
    exchange();
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
    EXPECT_TRUE(stream_ends(stream_));
  }
  // Of rank 1: rank 0 also has the bootstrap root, which closes its own some time.
  [[nodiscard]] int sockets() const {
    int count = 0;
    if (rank_ != 1) return 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (std::filesystem::read_symlink(entry.path(), error).string().rfind("socket:", 0) == 0) count++;
    }
    return count;
  }
  static RankOptions with(const std::string& name, const std::string& value) {
    RankOptions options;
    options.environment[name] = value;
    return options;
  }

  ncclComm_t communicator_ = nullptr;
  std::unique_ptr<Buffer<std::int32_t>> data_;
};

TEST_F(NcclsimTest, DifferentCountsAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(rank_ == 0 ? 8 : 16));
  expect_error(ncclInvalidUsage, "of 8 int32");
  expect_error(ncclInvalidUsage, "of 16 int32");
  end();
}

TEST_F(NcclsimTest, DifferentTypesAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(8, rank_ == 0 ? ncclInt32 : ncclFloat32));
  expect_error(ncclInvalidUsage, "of 8 float32");
  end();
}

TEST_F(NcclsimTest, DifferentOperatorsAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(8, ncclInt32, rank_ == 0 ? ncclSum : ncclMax));
  expect_error(ncclInvalidUsage, "operator 2");
  end();
}

TEST_F(NcclsimTest, AnotherOrderIsAnError) {
  if (!begin(2)) return;
  const auto broadcast = [this] {
    return nccl().ncclBroadcast(data(), data(), 8, ncclInt32, 0, communicator_, stream_);
  };
  Gate gate(stream_);
  EXPECT_NCCL(ncclSuccess, rank_ == 0 ? all_reduce(8) : broadcast());
  EXPECT_NCCL(ncclSuccess, rank_ == 0 ? broadcast() : all_reduce(8));
  gate.open();
  expect_error(ncclInvalidUsage, "Broadcast number 0");
  end();
}

TEST_F(NcclsimTest, DifferentRootsAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, nccl().ncclBroadcast(data(), data(), 8, ncclInt32, rank_, communicator_, stream_));
  expect_error(ncclInvalidUsage, "root 1");
  end();
}

TEST_F(NcclsimTest, AMessageOfAnotherSizeIsAnError) {
  if (!begin(2)) return;
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclSend(data(), 8, ncclInt32, 1, communicator_, stream_));
  }
  if (rank_ == 1) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(data(), 9, ncclInt32, 0, communicator_, stream_));
    expect_error(ncclInvalidUsage, "Send number 0 of 8 int32");
  }
  end();
}

TEST_F(NcclsimTest, AnErrorStays) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(rank_ == 0 ? 8 : 16));
  expect_error(ncclInvalidUsage, "differ");
  EXPECT_NCCL(ncclInvalidUsage, all_reduce());
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommDestroy(communicator_));
  end();
}

TEST_F(NcclsimTest, ReductionsFollowTheOrderOfRanks) {
  if (!begin(4)) return;
  // In any other order, or as a tree, the sum is another one.
  const float values[] = {1e8F, 1.0F, -1e8F, 2.0F};
  const Buffer<float> reduced(std::vector<float>(101, values[rank_]));
  for (int i = 0; i < 3; i++) {
    const Buffer<float> to(101);
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(reduced.get(), to.get(), 101, ncclFloat32, ncclSum,
                                                  communicator_, stream_));
    sync();
    EXPECT_EQ(std::vector<float>(101, 2.0F), to.values());
  }
  end();
}

TEST_F(NcclsimTest, RanksConnectAtTheirFirstOperation) {
  if (!begin(2)) return;
  const int connected = sockets() + (rank_ == 1 ? 1 : 0);
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(connected, sockets());
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(connected, sockets());
  end();
}

TEST_F(NcclsimTest, RanksConnectAtOnceIfToldTo) {
  if (!begin(2, with("NCCL_RUNTIME_CONNECT", "0"))) return;
  const int before = sockets();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(before, sockets());
  end();
}

TEST_F(NcclsimTest, ACommunicatorHoldsMemory) {
  if (!as_rank(1, with("NCCLSIM_DEVICE_MEMORY", "20971520"))) return;
  const std::size_t before = free_memory();
  communicator_ = init();
  EXPECT_TRUE(free_memory_becomes(before - (std::size_t{20} << 20)));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator_));
  EXPECT_TRUE(free_memory_becomes(before));
}

TEST_F(NcclsimTest, ImportsOutliveTheirExporter) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  const std::size_t before = free_memory();
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  data_.reset();
  exchange();
  if (rank_ == 1) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
    EXPECT_TRUE(free_memory_becomes(before - (std::size_t{2} << 20)));  // rank 0 has it
  }
  exchange();
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
  }
  exchange();
  EXPECT_TRUE(free_memory_becomes(before));
}

template <typename F>
F driver_function(const char* name) {
  return reinterpret_cast<F>(::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name));
}

// The driver's checkpoint of another process; the process goes on.
CUresult checkpoint(int pid) {
  const auto lock = driver_function<decltype(&::cuCheckpointProcessLock)>("cuCheckpointProcessLock");
  const auto save =
      driver_function<decltype(&::cuCheckpointProcessCheckpoint)>("cuCheckpointProcessCheckpoint");
  const auto restore = driver_function<decltype(&::cuCheckpointProcessRestore)>("cuCheckpointProcessRestore");
  const auto unlock = driver_function<decltype(&::cuCheckpointProcessUnlock)>("cuCheckpointProcessUnlock");
  CUcheckpointLockArgs locking{};
  locking.timeoutMs = 10000;
  EXPECT_CUDA_OK(lock(pid, &locking));
  CUcheckpointCheckpointArgs saving{};
  const CUresult result = save(pid, &saving);
  CUcheckpointRestoreArgs restoring{};
  if (result == CUDA_SUCCESS) {
    EXPECT_CUDA_OK(restore(pid, &restoring));
  }
  CUcheckpointUnlockArgs unlocking{};
  EXPECT_CUDA_OK(unlock(pid, &unlocking));
  return result;
}

TEST_F(NcclsimTest, ImportsForbidACheckpointUntilTheEnd) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  const int pid = std::atoi(exchange(std::to_string(::getpid()))[0].c_str());
  if (rank_ == 1) {
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, checkpoint(pid));
  }
  end();
  exchange();
  if (rank_ == 1) {
    EXPECT_EQ(CUDA_SUCCESS, checkpoint(pid));
  }
  exchange();
  EXPECT_EQ(2, data_->values()[0]);
  communicator_ = init();  // the driver works, and so does a new one
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(4, data_->values()[0]);
  end();
}

std::size_t entries_of(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Descriptors and threads: what a checkpoint of the process would meet.
TEST_F(NcclsimTest, AnEndLeavesNothingBehind) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  for (int i = 0; i < 5; i++) {
    communicator_ = init();
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
    ASSERT_NCCL(ncclSuccess, all_reduce());
    sync();
    exchange();
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(child));
    EXPECT_NCCL(ncclSuccess,
                i == 1 ? nccl().ncclCommAbort(communicator_) : nccl().ncclCommDestroy(communicator_));
    if (i > 0) continue;
    // The first round also opens what stays: the driver's.
    descriptors = entries_of("/proc/self/fd");
    threads = entries_of("/proc/self/task");
  }
  EXPECT_TRUE(becomes([&] { return entries_of("/proc/self/task") <= threads; })) << threads;
  EXPECT_TRUE(becomes([&] { return entries_of("/proc/self/fd") <= descriptors; })) << descriptors;
}

// The bootstrap root's address is in the id, as with NCCL.
sockaddr_in root_of(const ncclUniqueId& id) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, id.internal + 16, 4);
  std::memcpy(&address.sin_port, id.internal + 20, 2);
  return address;
}

// A registration as a rank's, which need not be right.
int register_with(const ncclUniqueId& id, std::uint64_t wrong, int rank, int ranks) {
  ncclsim::Registration registration;
  std::memcpy(&registration.secret, id.internal + 8, sizeof registration.secret);
  registration.secret += wrong;
  registration.info.rank = rank;
  registration.info.ranks = ranks;
  const sockaddr_in root = root_of(id);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(0, ::connect(socket, reinterpret_cast<const sockaddr*>(&root), sizeof root));
  EXPECT_EQ(ssize_t{sizeof registration}, ::send(socket, &registration, sizeof registration, MSG_NOSIGNAL));
  return socket;
}

TEST_F(NcclsimTest, ARegistrationWithoutTheSecretIsNone) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  const int stranger = rank_ == 0 ? register_with(id, 1, 1, 2) : -1;
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  if (rank_ == 0) ::close(stranger);
  end();
}

TEST_F(NcclsimTest, ARegistrationOutOfRangeIsNone) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  std::vector<int> strangers;
  const std::pair<int, int> wrong[] = {{-1, 2}, {2, 2}, {0, 0}, {1, 1 << 30}};
  for (const auto& [rank, ranks] : wrong) {
    if (rank_ == 0) strangers.push_back(register_with(id, 0, rank, ranks));
  }
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  for (const int stranger : strangers) ::close(stranger);
  end();
}

TEST_F(NcclsimTest, StrangersAreNoRanks) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  const sockaddr_in root = root_of(id);
  std::vector<int> strangers;
  for (int i = 0; rank_ == 0 && i < 8; i++) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0, ::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&root), sizeof root));
    // Some are silent, some end in the middle, some send what is no registration.
    const std::string garbage(static_cast<std::size_t>(i) * 40, 'x');
    if (i > 0) {
      EXPECT_LT(0, ::send(strangers.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
    }
    if (i % 3 == 1) ::shutdown(strangers.back(), SHUT_RDWR);
  }
  exchange();
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRank(&communicator_, 2, id, rank_));
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  for (const int stranger : strangers) ::close(stranger);
  end();
}

// The ports that this process listens on.
std::vector<sockaddr_in> listeners() {
  std::vector<sockaddr_in> found;
  for (int fd = 3; fd < 256; fd++) {
    int listens = 0;
    sockaddr_in address{};
    socklen_t bytes = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) continue;
    bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sin_family == AF_INET)
      found.push_back(address);
  }
  return found;
}

TEST_F(NcclsimTest, StrangersAreNoPeers) {
  if (!begin(2)) return;
  // As from rank 0, but for the number that only the ranks know; before rank 0 connects.
  struct {
    std::uint64_t secret = 0;
    std::uint32_t purpose = 0;
    std::int32_t from = 0;
    std::int32_t to = 1;
    std::uint32_t unused = 0;
  } hello;
  std::vector<int> strangers;
  for (const sockaddr_in& at : rank_ == 1 ? listeners() : std::vector<sockaddr_in>{}) {
    for (const std::size_t bytes : {sizeof hello, sizeof hello - 3, std::size_t{0}}) {
      strangers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(0, ::connect(strangers.back(), reinterpret_cast<const sockaddr*>(&at), sizeof at));
      ASSERT_EQ(static_cast<ssize_t>(bytes), ::send(strangers.back(), &hello, bytes, MSG_NOSIGNAL));
    }
  }
  EXPECT_EQ(rank_ == 1 ? 6U : 0U, strangers.size());
  exchange();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  ncclComm_t child = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
  sync();
  for (const int stranger : strangers) ::close(stranger);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(child));
  end();
}

TEST_F(NcclsimTest, ABeginThatBlocksHasADeadline) {
  if (!as_rank(1, with("NCCLSIM_TIMEOUT_MS", "50"))) return;
  EXPECT_NCCL(ncclSystemError, nccl().ncclCommInitRank(&communicator_, 2, shared_id(), 0));
  EXPECT_EQ(nullptr, communicator_);
}

TEST_F(NcclsimTest, AnotherThreadEndsABeginThatBlocks) {
  if (!as_rank(1)) return;
  const ncclUniqueId id = shared_id();
  auto begun =
      std::async(std::launch::async, [&] { return nccl().ncclCommInitRank(&communicator_, 2, id, 0); });
  // The handle is there while the call is still at it, as with NCCL.
  std::atomic_ref<ncclComm_t> handle(communicator_);
  while (handle.load() == nullptr) std::this_thread::yield();
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(handle.load()));
  EXPECT_NE(ncclSuccess, begun.get());
}

// Two communicators on two streams each, in an order that all ranks share.
TEST_F(NcclsimTest, ManyOperationsOfManyCommunicators) {
  if (!begin(4)) return;
  ncclComm_t communicators[] = {communicator_, nullptr};
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, -rank_, &communicators[1], nullptr));
  CUstream streams[] = {stream_, nullptr};
  ASSERT_CUDA_OK(cuda().cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  std::vector<std::unique_ptr<Buffer<std::int32_t>>> buffers;
  for (int i = 0; i < 4; i++) buffers.push_back(std::make_unique<Buffer<std::int32_t>>(1000, 1));
  std::vector<std::int32_t> expected(4, 1);
  std::uint32_t seed = 12345;
  for (int i = 0; i < 150; i++) {
    seed = seed * 1664525U + 1013904223U;
    const std::size_t which = seed >> 30;
    const std::size_t count = (seed >> 8) % 1000 + 1;
    // A buffer has its stream and its communicator.
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(buffers[which]->get(), buffers[which]->get(), count, ncclInt32, ncclMax,
                                     communicators[which % 2], streams[which / 2]));
    if (i % 12 != 0) continue;
    expected[which] *= 4;
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(buffers[which]->get(), buffers[which]->get(), 1000, ncclInt32, ncclSum,
                                     communicators[which % 2], streams[which / 2]));
  }
  for (CUstream stream : streams) ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream));
  for (std::size_t i = 0; i < 4; i++)
    EXPECT_EQ(std::vector<std::int32_t>(1000, expected[i]), buffers[i]->values());
  EXPECT_CUDA_OK(cuda().cuStreamDestroy_v2(streams[1]));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicators[1]));
  end();
}

TEST_F(NcclsimTest, RanksThatDoNotFitTogetherAreRefused) {
  if (!as_rank(2)) return;
  ncclUniqueId id = shared_id();
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator_, 2 + rank_, id, rank_));
  EXPECT_NE(std::string::npos, last_error().find("disagree")) << last_error();
  id = shared_id();
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator_, 3, id, 1));
  EXPECT_NE(std::string::npos, last_error().find("twice")) << last_error();
  const ncclUniqueId garbage{};
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&communicator_, 2, garbage, rank_));
  exchange();
}

TEST_F(NcclsimTest, ARankThatDiesInTheMiddleOfTheBeginIsAnError) {
  RankOptions options;
  options.killed = {1};
  if (!as_rank(3, options)) return;
  const ncclUniqueId id = shared_id();
  if (rank_ == 1) {
    register_with(id, 0, 1, 3);  // as far as the root's table, which lacks a third rank
    exchange();
    kill_self();
  }
  exchange();
  if (rank_ == 0) {
    EXPECT_NCCL(ncclRemoteError, nccl().ncclCommInitRank(&communicator_, 3, id, 0));
  }
}

class FaultTest : public NcclsimTest {
 protected:
  static std::string file() {
    return std::filesystem::temp_directory_path() / ("ncclsim-" + std::to_string(::getpid()));
  }
  void TearDown() override {
    std::filesystem::remove(file());
    NcclsimTest::TearDown();
  }
  static void order(const std::string& lines) {
    std::ofstream out(file());
    out << lines;
  }
};

TEST_F(FaultTest, AnEndlessBeginEndsWithAnAbort) {
  if (!as_rank(1, with("NCCLSIM_INIT_ENDLESS", "1"))) return;
  ncclConfig_t config = non_blocking();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  // It can be seen for a while only.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < until)
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator_, &state));
  EXPECT_EQ(ncclInProgress, state);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommDestroy(communicator_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
}

TEST_F(FaultTest, ASlowBeginIsInProgressForSoLong) {
  if (!as_rank(1)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  order("init-delay 100 comm=slow\n");
  ncclConfig_t config = non_blocking();
  config.commName = "slow";
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  EXPECT_NCCL(ncclSuccess, settled(communicator_));
  EXPECT_LE(std::chrono::milliseconds(100), std::chrono::steady_clock::now() - begun);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator_));
}

TEST_F(FaultTest, AnEndlessSplitEndsWithAnAbortOfItsParent) {
  if (!as_rank(1)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  ncclConfig_t config = non_blocking();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  ASSERT_NCCL(ncclSuccess, settled(communicator_));
  order("init-endless\n");
  ncclComm_t child = nullptr;
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
  EXPECT_EQ(nullptr, child);
}

TEST_F(FaultTest, AnErrorIsInjectedFromOutside) {
  if (!as_rank(2)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  order("async-error 3 rank=1\nno fault at all\nasync-error 6 comm=another\n");
  if (rank_ == 1) expect_error(ncclInternalError, "NCCLSIM_FAULTS");
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, settled(communicator_));
  }
  order("async-error 2 rank=0\n");
  if (rank_ == 0) expect_error(ncclSystemError, "NCCLSIM_FAULTS");
  end();
}

TEST_F(FaultTest, AConnectionIsCutFromOutside) {
  if (!as_rank(2)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  if (rank_ == 0) order("drop-peer 1\n");
  exchange();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  expect_error(ncclRemoteError, "peer");
  end();
}

}  // namespace
}  // namespace nccl_test
