// SPDX-License-Identifier: Apache-2.0
// gpumigrate-bench-calls: measures the time that the calls of ckpt.h and the shim's open gate take, with
// Google Benchmark. It is a separate program because it is a job. It links libckpt.so as jobs do, and one of
// its threads acts as the keeper. It takes Google Benchmark's options. The section "calls" of
// gpumigrate-bench runs it.
#include <benchmark/benchmark.h>
#include <ckpt/ckpt.h>
#include <poll.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "libckpt/cuda/driver.h"
#include "libckpt/inprocess/local/control_page.h"
#include "libckpt/inprocess/local/socket.h"
#include "libckpt/inprocess/shim/functions/kinds.h"

namespace ckpt::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{2} << 20;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "gpumigrate-bench-calls: %s\n", what.c_str());
  std::exit(1);
}
template <class T>
T must(Result<T> result) {
  if (!result.has_value()) fail(result.error().to_string());
  return *std::move(result);
}
void must(ckpt_status status) {
  if (status != CKPT_OK) fail(ckpt_last_error());
}

// An idle keeper. It welcomes one program and reads the program's messages until the program exits. Idle
// means that it never requests anything.
class Keeper {
 public:
  Keeper() : page_(must(local::ControlPageMapping::create())) {
    std::string path = (std::filesystem::temp_directory_path() / "gpumigrate-bench-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      fail("Cannot create a folder for the keeper's socket like " + path);
    folder_ = path;
    listener_.emplace(must(local::Listener::create(socket())));
    thread_ = std::thread([this] { serve(); });
  }
  ~Keeper() {
    thread_.join();
    listener_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  [[nodiscard]] std::string socket() const { return folder_ + "/keeper.sock"; }

 private:
  void serve() {
    pollfd watched{listener_->fd(), POLLIN, 0};
    while (::poll(&watched, 1, -1) < 0) {
    }
    auto connection = must(listener_->accept());
    if (!connection) fail("No process connected to the keeper");
    (void)connection->set_blocking(true);
    (void)connection->receive();  // receives the message Hello
    local::Welcome welcome;
    welcome.role = local::Role::kFresh;
    welcome.incarnation = 1;
    const int fd = page_.fd();
    (void)connection->send({0, 0, welcome}, std::span(&fd, 1));
    while (true) {
      auto received = connection->receive();
      if (!received.has_value() || received->transfer == local::Transfer::kClosed) return;
    }
  }

  local::ControlPageMapping page_;
  std::string folder_;
  std::optional<local::Listener> listener_;
  std::thread thread_;
};

// A job that is ready and has one tensor. It runs under a keeper, or without one, as outside of gpumigrate.
class Job {
 public:
  explicit Job(bool with_keeper) : device_(must(Device::open(0))), scope_(device_) {
    if (with_keeper) keeper_ = std::make_unique<Keeper>();
    if (with_keeper)
      ::setenv("CKPT_SOCKET", keeper_->socket().c_str(), 1);
    else
      ::unsetenv("CKPT_SOCKET");
    ckpt_role role{};
    must(ckpt_init(nullptr, &session_, &role));
    must(ckpt_alloc(session_, kBytes, &memory_));
    must(ckpt_tensor(session_, "weights", memory_, kBytes / 2, CKPT_U8, 1, &kHalf, CKPT_PARAMETER));
    ckpt_start start{};
    must(ckpt_ready(session_, &start));
  }
  ~Job() {
    ckpt_shutdown(session_);
    keeper_.reset();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  [[nodiscard]] ckpt_session* get() const noexcept { return session_; }
  [[nodiscard]] ckpt_devptr free_half() const noexcept { return memory_ + kBytes / 2; }

  static constexpr std::uint64_t kHalf = kBytes / 2;

 private:
  Device device_;
  ContextScope scope_;
  std::unique_ptr<Keeper> keeper_;
  ckpt_session* session_ = nullptr;
  ckpt_devptr memory_ = 0;
};

// Measures an empty call into a shared library. This time is part of every other call's time.
void empty_call(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ckpt_abi_version());
}
void barrier(benchmark::State& state, bool with_keeper) {
  const Job job(with_keeper);
  for (auto _ : state) benchmark::DoNotOptimize(ckpt_barrier(job.get()));
}
void tensor(benchmark::State& state) {
  const Job job(true);
  for (auto _ : state) {
    must(
        ckpt_tensor(job.get(), "bias", job.free_half(), Job::kHalf, CKPT_U8, 1, &Job::kHalf, CKPT_PARAMETER));
    must(ckpt_drop(job.get(), "bias"));
  }
}
void allocation(benchmark::State& state) {
  const Job job(true);
  for (auto _ : state) {
    ckpt_devptr pointer = 0;
    must(ckpt_alloc(job.get(), kBytes, &pointer));
    must(ckpt_free(job.get(), pointer));
  }
}

// A call that the driver answers from memory. It is measured directly, and through the gate as the shim
// forwards calls that submit work. The difference of the two times is the cost of the gate.
struct GatedCall {
  static constexpr const char* kName = "cuDriverGetVersion";
  static constexpr auto kReal = &shim::RealDriver::cuDriverGetVersion;
  static constexpr shim::Kind kKind = shim::Kind::kGate;
};
void driver_call(benchmark::State& state, bool gated) {
  int version = 0;
  const auto function = gated ? shim::kThrough<GatedCall> : shim::real().cuDriverGetVersion;
  if (function == nullptr || function(&version) != CUDA_SUCCESS)
    fail("cuDriverGetVersion failed: " + shim::real_driver_error());
  for (auto _ : state) benchmark::DoNotOptimize(function(&version));
}

BENCHMARK(empty_call);
BENCHMARK_CAPTURE(driver_call, straight, false);
BENCHMARK_CAPTURE(driver_call, gated, true);
BENCHMARK_CAPTURE(barrier, idle, true);
BENCHMARK_CAPTURE(barrier, no_keeper, false);
BENCHMARK(tensor);
BENCHMARK(allocation);

}  // namespace
}  // namespace ckpt::bench

BENCHMARK_MAIN();
