// SPDX-License-Identifier: Apache-2.0
// Measures a transfer of the same bytes over the engine's lanes. It uses active messages with the engine's
// size and the engine's number in flight. Payloads to a sink on the same host stay in a file of the source,
// as staged chunks do. The sink maps this file.
#include <sys/mman.h>

#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/transport/transport.h"
#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/child_roles.h"

namespace ckpt::bench {
namespace {

constexpr transport::SessionToken kToken = {std::byte{7}};
constexpr std::size_t kHeaderBytes = 64;
constexpr Nanos kWait = 1'000'000'000;

// A memory file that is mapped whole, or up to its existing size.
class MappedFile {
 public:
  static Result<MappedFile> create(std::size_t bytes) {
    CKPT_TRY(file, make_memory_file("bench-ring", bytes));
    return map(std::move(file), bytes);
  }
  static Result<MappedFile> map(UniqueFd file, std::size_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (at == MAP_FAILED) return Error::from_errno("Cannot map a stream's ring");
    return MappedFile(std::move(file), {static_cast<std::byte*>(at), bytes});
  }
  MappedFile(MappedFile&& other) noexcept
      : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] int file() const { return file_.get(); }

 private:
  MappedFile(UniqueFd file, std::span<std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}
  UniqueFd file_;
  std::span<std::byte> bytes_;
};

// An end of a lane, for both directions: a ring of buffers to send from or to receive into, and counters.
class LaneEnd final : public transport::LaneHandler {
 public:
  explicit LaneEnd(HostMemory ring) : memory_(std::move(ring)), ring_(memory_->bytes()) {}
  explicit LaneEnd(MappedFile ring) : file_(std::move(ring)), ring_(file_->bytes()) {}

  Result<void> wait_open() {
    while (!open_ && !error_) drive();
    return state();
  }
  Result<void> send(std::uint64_t messages) {
    const std::size_t window = engine::SenderOptions{}.window;
    const std::byte header[kHeaderBytes] = {};
    for (std::uint64_t sent = 0; !error_ && (sent < messages || in_flight_ > 0);) {
      while (sent < messages && in_flight_ < window) {
        CKPT_TRYV(lane_->send(header, next_slot(message_bytes_), sent));
        ++sent;
        ++in_flight_;
      }
      drive();
    }
    return state();
  }
  // Counts down `received` when `messages` messages have arrived. Then the function drives the lane until the
  // source closes the lane, because an earlier close may lose the source's last completions.
  Result<void> receive(std::uint64_t messages, std::latch& received) {
    while (!error_ && received_ < messages) drive();
    received.count_down();
    while (!error_) drive();
    return received_ >= messages ? ok() : state();
  }
  void set_lane(std::unique_ptr<transport::Lane> lane) { lane_ = std::move(lane); }
  [[nodiscard]] transport::Lane& lane() { return *lane_; }

 private:
  transport::SameHostMemory same_host_memory() override {
    if (!file_) return {};
    return {ring_, file_->file(), ring_};
  }
  std::span<const std::byte> map_same_host(UniqueFd file, std::size_t bytes) override {
    auto mapped = MappedFile::map(std::move(file), bytes);
    if (!mapped) return {};
    file_.emplace(*std::move(mapped));
    return file_->bytes();
  }
  void on_open() override { open_ = true; }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t bytes) override {
    return bytes <= message_bytes_ ? next_slot(bytes) : std::span<std::byte>{};
  }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override { ++received_; }
  void on_sent(std::uint64_t) override { --in_flight_; }
  void on_closed(const Error& error) override { error_ = error; }

  std::span<std::byte> next_slot(std::size_t bytes) {
    return ring_.subspan(next_++ * message_bytes_ % ring_.size(), bytes);
  }
  void drive() {
    if (!lane_->progress()) lane_->wait(kWait);
  }
  Result<void> state() const {
    if (error_) return *error_;
    return ok();
  }

  const std::size_t message_bytes_ = lane_message_bytes();
  std::optional<HostMemory> memory_;
  std::optional<MappedFile> file_;
  std::span<std::byte> ring_;
  std::unique_ptr<transport::Lane> lane_;
  std::size_t next_ = 0;
  std::uint64_t received_ = 0;
  std::size_t in_flight_ = 0;
  bool open_ = false;
  std::optional<Error> error_;
};

class UcxSource final : public ByteSource {
 public:
  static Result<std::unique_ptr<ByteSource>> connect(const std::string& address, bool same_host) {
    CKPT_TRY(source, make(same_host));
    CKPT_TRY(transport, transport::make_ucx_transport({}));
    source->transport_ = std::move(transport);
    CKPT_TRY(lane, source->transport_->connect(address, kToken, source->end_));
    source->end_.set_lane(std::move(lane));
    CKPT_TRYV(source->end_.wait_open());
    if ((source->end_.lane().payload_access() != transport::PayloadAccess::kSent) != same_host)
      return Error(ErrorCode::kNotSupported, "Processes of this machine cannot read each other's memory");
    return source;
  }
  template <class Ring>
  explicit UcxSource(Ring ring) : end_(std::move(ring)) {}
  Result<void> send(std::uint64_t messages) override { return end_.send(messages); }

 private:
  static Result<std::unique_ptr<UcxSource>> make(bool same_host) {
    if (same_host) {
      CKPT_TRY(file, MappedFile::create(kRingBytes));
      return std::make_unique<UcxSource>(std::move(file));
    }
    CKPT_TRY(ring, make_ring());
    return std::make_unique<UcxSource>(std::move(ring));
  }

  std::unique_ptr<transport::Transport> transport_;
  LaneEnd end_;
};

Result<void> serve_run(Link& link, transport::Transport& transport, std::uint64_t connections,
                       std::uint64_t messages) {
  std::vector<std::unique_ptr<LaneEnd>> ends;
  nlohmann::json addresses = nlohmann::json::array();
  for (std::uint64_t i = 0; i < connections; ++i) {
    CKPT_TRY(ring, make_ring());
    ends.push_back(std::make_unique<LaneEnd>(std::move(ring)));
    CKPT_TRY(lane, transport.listen(kToken, *ends.back()));
    addresses.push_back(lane->address());
    ends.back()->set_lane(std::move(lane));
  }
  CKPT_TRYV(link.send({{"addresses", addresses}}));
  // A separate thread drives each lane from the start. The greeting of one peer may still be under way while
  // the next peer sends its own.
  std::vector<Result<void>> results(connections, ok());
  std::latch connected(static_cast<std::ptrdiff_t>(connections));
  std::latch received(static_cast<std::ptrdiff_t>(connections));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < connections; ++i)
    threads.emplace_back([&, i] {
      results[i] = ends[i]->wait_open();
      connected.count_down();
      if (results[i])
        results[i] = ends[i]->receive(messages, received);
      else
        received.count_down();
    });
  connected.wait();
  Result<void> told = link.send({{"connected", connections}});
  received.wait();
  if (told) told = link.send({{"received", connections}});
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    CKPT_TRYV(std::move(result));
  }
  return told;
}

}  // namespace

std::size_t lane_message_bytes() {
  return engine::SenderOptions{}.message_bytes;
}

Result<std::unique_ptr<ByteSource>> connect_ucx(const std::string& address, bool same_host) {
  return UcxSource::connect(address, same_host);
}

Result<void> run_ucx_sink(Link& link) {
  CKPT_TRY(transport, transport::make_ucx_transport({}));
  while (true) {
    CKPT_TRY(request, link.receive());
    CKPT_TRY(connections, number_of(request, "connections"));
    CKPT_TRY(messages, number_of(request, "messages"));
    CKPT_TRYV(serve_run(link, *transport, connections, messages));
  }
}

}  // namespace ckpt::bench
