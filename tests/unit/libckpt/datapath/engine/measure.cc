// SPDX-License-Identifier: Apache-2.0
// Measures sender and receiver over UCX's loopback device in one process, and each stage alone; asserts
// nothing. The figures serve to choose lanes, windows, message sizes and threads.
//   engine_measure [--bytes N] [--lanes N] [--window N] [--message N] [--chunk N] [--coders N] [--bandwidth
//   N] [--runs N]
//                  [--codec auto|raw|planes|difference] [--data random|floats] [--no-stages]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/machine/cores.h"
#include "libckpt/base/random.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/engine/target/receiver.h"

namespace ckpt::engine {
namespace {

struct Wanted {
  std::uint64_t bytes = std::uint64_t{1} << 30;
  std::uint32_t lanes = default_lanes();
  std::uint32_t window = SenderOptions{}.window;
  std::uint64_t message = SenderOptions{}.message_bytes;
  std::uint64_t chunk = kDefaultChunkBytes;
  std::uint32_t coders = 0;
  std::uint64_t shadow = 0;
  std::uint64_t bandwidth = 0;
  int runs = 3;
  codec::CodecMode codec = codec::CodecMode::kRaw;
  bool floats = false;
  bool stages = true;
};

template <class T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    std::exit(1);
  }
  return *std::move(result);
}
void must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
  std::exit(1);
}
void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: CUresult %d\n", what, static_cast<int>(result));
  std::exit(1);
}
double rate(std::uint64_t bytes, Nanos time) {
  return static_cast<double>(bytes) / static_cast<double>(time);
}
double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

CUdeviceptr allocate(const Device& device, std::uint64_t bytes) {
  const ContextScope scope(device);
  CUdeviceptr pointer = 0;
  check(device.api().cuMemAlloc_v2(&pointer, bytes), "cuMemAlloc");
  return pointer;
}

// Fills the memory with normally distributed floats, which resemble weights, or with random bits, which no
// codec shortens.
void fill(const Device& device, CUdeviceptr to, std::uint64_t bytes, bool floats) {
  const ContextScope scope(device);
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
  std::vector<std::uint64_t> piece(kPiece / 8);
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0, 0.02F);
  if (floats) {
    auto* values = reinterpret_cast<float*>(piece.data());
    for (std::uint64_t i = 0; i < kPiece / 4; ++i) values[i] = normal(random);
  } else {
    for (auto& word : piece) word = random();
  }
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    piece[0] ^= at;
    check(device.api().cuMemcpyHtoD_v2(to + at, piece.data(), std::min(kPiece, bytes - at)), "cuMemcpyHtoD");
  }
}

class Move : public ReceiverDelegate {
 public:
  Move(const Device& source, const Device& target, const Wanted& wanted, CUdeviceptr from, CUdeviceptr to)
      : wanted_(wanted), to_(to) {
    source_staging_ = must(StagingPool::create(source, std::uint64_t{128} << 20));
    target_staging_ = must(StagingPool::create(target, std::uint64_t{128} << 20));
    transport_ = must(transport::make_ucx_transport({}));
    ReceiverOptions receive;
    must(fill_random(receive.key));
    must(fill_random(receive.token));
    receive.id = {42, 2, 0};
    receive.lanes = wanted.lanes;
    receive.window = wanted.window;
    receive.coders = wanted.coders;
    receiver_ = must(Receiver::create(target, *target_staging_, *transport_, *this, receive));
    SenderOptions send;
    send.id = receive.id;
    send.key = receive.key;
    send.token = receive.token;
    send.addresses = receiver_->addresses();
    send.chunk_bytes = wanted.chunk;
    send.message_bytes = wanted.message;
    send.window = wanted.window;
    send.bandwidth = wanted.bandwidth;
    send.codec = wanted.codec;
    send.coders = wanted.coders;
    send.shadow_memory_bytes = wanted.shadow;
    sender_ = must(Sender::create(source, *source_staging_, *transport_, send));
    must(sender_->connect());
    must(sender_->send_plan(std::as_bytes(std::span("p", 1))));
    must(sender_->add_region({1, 1, from, wanted.bytes, nullptr}));
  }
  ~Move() override {
    sender_.reset();
    receiver_.reset();
  }
  Sender& sender() { return *sender_; }

 private:
  Result<PlanPlaces> on_plan(std::span<const std::byte>) override {
    return PlanPlaces{wanted_.chunk, {{1, 1, to_, wanted_.bytes, nullptr}}};
  }
  Result<void> on_manifest(std::span<const std::byte>, const track::Fingerprint&,
                           const ReceivedHostState&) override {
    return ok();
  }
  void on_verified(const VerifiedReport&, ReceivedHostState) override {}
  void on_failed(const Error& error) override {
    std::fprintf(stderr, "target: %s\n", error.to_string().c_str());
  }
  Wanted wanted_;
  CUdeviceptr to_;
  std::unique_ptr<StagingPool> source_staging_, target_staging_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<Receiver> receiver_;
  std::unique_ptr<Sender> sender_;
};

// ---- each stage alone, bytes per nanosecond

double measure_scan(const Device& device, CUdeviceptr at, std::uint64_t bytes, std::uint64_t chunk) {
  auto params = track::FingerprintParams::expand({}, track::FingerprintPurpose::kChunks);
  auto kernels = must(track::TrackKernels::create(device, params));
  track::ScannerOptions options;
  options.slice_bytes = std::uint64_t{256} << 20;
  auto scanner = must(track::Scanner::create(kernels, options));
  std::vector<track::ChunkRange> chunks;
  track::append_chunks(at, bytes, chunk, chunks);
  std::vector<track::Fingerprint> out(chunks.size());
  must(scanner->scan(chunks, out));
  const Nanos begin = now_ns();
  must(scanner->scan(chunks, out));
  return rate(bytes, now_ns() - begin);
}

double measure_copy(const Device& device, CUdeviceptr at, const Wanted& wanted, bool to_device) {
  auto staging = must(StagingPool::create(device, std::uint64_t{32} << 20));
  auto slots = must(staging->acquire(wanted.window));
  const ContextScope scope(device);
  const DriverApi& api = device.api();
  CUstream stream = nullptr;
  check(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  Nanos begin = 0;
  for (int pass = 0; pass < 2; ++pass) {
    begin = now_ns();
    for (std::uint64_t done = 0, i = 0; done < wanted.bytes; done += wanted.message, ++i) {
      std::byte* slot = slots[i % slots.size()].memory().data();
      if (to_device)
        check(api.cuMemcpyHtoDAsync_v2(at + done, slot, wanted.message, stream), "copy");
      else
        check(api.cuMemcpyDtoHAsync_v2(slot, at + done, wanted.message, stream), "copy");
      if (i % slots.size() == 0) check(api.cuStreamSynchronize(stream), "synchronize");
    }
    check(api.cuStreamSynchronize(stream), "synchronize");
  }
  const double result = rate(wanted.bytes, now_ns() - begin);
  check(api.cuStreamDestroy_v2(stream), "cuStreamDestroy");
  return result;
}

double measure_fingerprint(const Device& device, const Wanted& wanted) {
  auto params = track::FingerprintParams::expand({}, track::FingerprintPurpose::kChunks);
  auto staging = must(StagingPool::create(device, std::uint64_t{32} << 20));
  auto slots = must(staging->acquire(wanted.window));
  for (const auto& slot : slots) std::memset(slot.memory().data(), 3, slot.memory().size());
  std::uint64_t sum = 0;
  const Nanos begin = now_ns();
  for (std::uint64_t done = 0, i = 0; done < wanted.bytes; done += wanted.message, ++i)
    for (std::uint64_t c = 0; c < wanted.message; c += wanted.chunk)
      sum += track::fingerprint(*params, slots[i % slots.size()].memory().subspan(c, wanted.chunk)).lo;
  const double result = rate(wanted.bytes, now_ns() - begin);
  return sum == 1 ? 0 : result;
}

// The result of one UCX stream. The rates use the CPU time of each side's thread.
struct Link {
  double wall = 0, send = 0, receive = 0;
};
struct Stream : transport::LaneHandler {
  Stream(std::size_t bytes, std::size_t window) : ring(window * bytes, std::byte{1}), slot_bytes(bytes) {}
  std::vector<std::byte> ring;
  std::size_t slot_bytes, next = 0, received = 0, in_flight = 0;
  bool open = false, closed = false;
  std::span<std::byte> slot() {
    return std::span(ring).subspan(next++ % (ring.size() / slot_bytes) * slot_bytes, slot_bytes);
  }
  void on_open() override { open = true; }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return slot(); }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override { ++received; }
  void on_sent(std::uint64_t) override { --in_flight; }
  void on_closed(const Error&) override { closed = true; }
};

Link measure_link(const Wanted& wanted) {
  const std::size_t count = wanted.bytes / wanted.message;
  auto transport = must(transport::make_ucx_transport({}));
  Stream end(wanted.message, wanted.window);
  auto lane = must(transport->listen({}, end));
  Link link;
  std::thread sender([&, address = lane->address()] {
    Stream out(wanted.message, wanted.window);
    auto sending = must(transport->connect(address, {}, out));
    double begin = 0;
    for (std::size_t sent = 0; !out.closed;) {
      if (begin == 0 && out.open) begin = cpu_seconds(RUSAGE_THREAD);
      while (out.open && sent < count && out.in_flight < wanted.window) {
        must(sending->send(std::as_bytes(std::span("head", 4)), out.slot(), sent++));
        ++out.in_flight;
      }
      if (!sending->progress()) sending->wait(1'000'000'000);
    }
    link.send = static_cast<double>(wanted.bytes) / (cpu_seconds(RUSAGE_THREAD) - begin) * 1e-9;
  });
  while (!end.open)
    if (!lane->progress()) lane->wait(1'000'000'000);
  const Nanos begin = now_ns();
  const double cpu = cpu_seconds(RUSAGE_THREAD);
  while (end.received < count && !end.closed)
    if (!lane->progress()) lane->wait(1'000'000'000);
  link.wall = rate(wanted.bytes, now_ns() - begin);
  link.receive = static_cast<double>(wanted.bytes) / (cpu_seconds(RUSAGE_THREAD) - cpu) * 1e-9;
  lane->close();
  sender.join();
  return link;
}

// Measures `lanes` plain TCP connections.
double measure_tcp(const Wanted& wanted) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {::htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 8) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    std::abort();
  const std::uint64_t each = wanted.bytes / wanted.lanes;
  std::vector<std::thread> threads;
  const Nanos begin = now_ns();
  for (std::uint32_t i = 0; i < wanted.lanes; ++i) {
    threads.emplace_back([&] {
      const UniqueFd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        std::abort();
      const std::vector<std::byte> ring(wanted.window * wanted.message, std::byte{1});
      for (std::uint64_t sent = 0, at = 0; sent < each; sent += wanted.message, ++at)
        must(write_all(out.get(),
                       std::span(ring).subspan(at % wanted.window * wanted.message, wanted.message)));
    });
    threads.emplace_back([&, in = UniqueFd(::accept(listener.get(), nullptr, nullptr))] {
      std::vector<std::byte> ring(wanted.window * wanted.message);
      for (std::uint64_t total = 0; total < each;) {
        const std::uint64_t at = total % ring.size();
        const ssize_t got =
            ::read(in.get(), ring.data() + at, std::min<std::uint64_t>(wanted.message, ring.size() - at));
        if (got <= 0) break;
        total += static_cast<std::uint64_t>(got);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return rate(wanted.bytes, now_ns() - begin);
}

double measure_batches(const Device& device, CUdeviceptr at, const Wanted& wanted) {
  auto params = track::FingerprintParams::expand({}, track::FingerprintPurpose::kChunks);
  auto kernels = must(track::TrackKernels::create(device, params));
  std::vector<std::unique_ptr<track::FingerprintBatch>> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(must(track::FingerprintBatch::create(kernels, kMaxChunks)));
  const ContextScope scope(device);
  CUstream stream = nullptr;
  check(device.api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const Nanos begin = now_ns();
  for (std::uint64_t done = 0, i = 0; done < wanted.bytes; done += wanted.message, ++i) {
    std::vector<track::ChunkRange> chunks;
    track::append_chunks(at + done, wanted.message, wanted.chunk, chunks);
    if (batches[i % 2]->busy()) must(batches[i % 2]->wait());
    must(batches[i % 2]->launch(stream, chunks));
  }
  for (const auto& batch : batches)
    if (batch->busy()) must(batch->wait());
  const double result = rate(wanted.bytes, now_ns() - begin);
  check(device.api().cuStreamDestroy_v2(stream), "cuStreamDestroy");
  return result;
}

std::uint64_t number(const char* text) {
  char* end = nullptr;
  std::uint64_t value = std::strtoull(text, &end, 0);
  const std::string unit = end;
  if (unit == "KiB") value <<= 10;
  if (unit == "MiB") value <<= 20;
  if (unit == "GiB") value <<= 30;
  return value;
}

Wanted parse(int argc, char** argv) {
  Wanted wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-stages") {
      wanted.stages = false;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (name == "--bytes") wanted.bytes = number(value);
    if (name == "--coders") wanted.coders = static_cast<std::uint32_t>(number(value));
    if (name == "--shadow") wanted.shadow = number(value);
    if (name == "--lanes") wanted.lanes = static_cast<std::uint32_t>(number(value));
    if (name == "--window") wanted.window = static_cast<std::uint32_t>(number(value));
    if (name == "--message") wanted.message = number(value);
    if (name == "--chunk") wanted.chunk = number(value);
    if (name == "--bandwidth") wanted.bandwidth = number(value);
    if (name == "--runs") wanted.runs = static_cast<int>(number(value));
    if (name == "--data") wanted.floats = std::string(value) == "floats";
    if (name == "--codec") {
      const std::string codec = value;
      wanted.codec = codec == "auto"         ? codec::CodecMode::kAuto
                     : codec == "planes"     ? codec::CodecMode::kPlanes
                     : codec == "difference" ? codec::CodecMode::kDifference
                                             : codec::CodecMode::kRaw;
    }
  }
  return wanted;
}

}  // namespace

int measure(int argc, char** argv) {
  const Wanted wanted = parse(argc, argv);
  const Device source = must(Device::open(0));
  const Device target = must(Device::open(1));
  const CUdeviceptr from = allocate(source, wanted.bytes);
  const CUdeviceptr to = allocate(target, wanted.bytes);
  fill(source, from, wanted.bytes, wanted.floats);
  fill(target, to, wanted.bytes, false);
  const double cores = usable_cores();
  for (int run = 0; run < wanted.runs; ++run) {
    double limit = 0;
    if (wanted.stages) {
      const double scan = measure_scan(source, from, wanted.bytes, wanted.chunk);
      const double out = measure_copy(source, from, wanted, false);
      const double print = measure_fingerprint(source, wanted);
      const Link link = measure_link(wanted);
      const double tcp = measure_tcp(wanted);
      const double in = measure_copy(target, to, wanted, true);
      const double there = measure_batches(target, to, wanted);
      const double sum =
          1 / scan + 1 / out + 1 / print + 1 / link.send + 1 / link.receive + 1 / in + 1 / there;
      limit = std::min(cores / sum, tcp);
      std::printf(
          "scan %.1f  D2H %.1f  fingerprint %.1f  UCX send %.1f receive %.1f (wall %.1f)  H2D %.1f  "
          "fingerprint there %.1f | cores/sum %.2f, plain TCP %.2f GB/s\n",
          scan, out, print, link.send, link.receive, link.wall, in, there, cores / sum, tcp);
    }
    Move move(source, target, wanted, from, to);
    if (wanted.bandwidth != 0) limit = static_cast<double>(wanted.bandwidth) * 1e-9;
    (void)must(move.sender().measure_link());
    const double cpu = cpu_seconds(RUSAGE_SELF);
    const RoundReport report = must(move.sender().run_round());
    const double busy = cpu_seconds(RUSAGE_SELF) - cpu;
    const double reached = rate(wanted.bytes, report.end_ns - report.begin_ns);
    std::printf(
        "pipeline %.2f GB/s  ratio %.3f  scan %.0f ms  round %.0f ms  wire/plain %.3f  own CPU %.0f ms\n",
        reached, limit > 0 ? reached / limit : 0,
        static_cast<double>(report.scan_end_ns - report.begin_ns) * 1e-6,
        static_cast<double>(report.end_ns - report.begin_ns) * 1e-6,
        static_cast<double>(report.wire_bytes) / static_cast<double>(wanted.bytes), busy * 1e3);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace ckpt::engine

int main(int argc, char** argv) {
  return ckpt::engine::measure(argc, argv);
}
