// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/engine_pair.h"

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "libckpt/base/random.h"
#include "libckpt/datapath/engine/target/receiver.h"
#include "tools/bench/measuring/child_roles.h"

namespace ckpt::bench {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{128} << 20;
constexpr engine::SessionIdentity kIdentity{1, 1, 0};
constexpr std::uint64_t kRegion = 1;
constexpr std::uint64_t kGeneration = 1;

struct Plan {
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
};

// Returns the bytes of a fixed-size array as numbers, for JSON.
template <class Array>
nlohmann::json numbers_of(const Array& bytes) {
  nlohmann::json out = nlohmann::json::array();
  for (const std::byte byte : bytes) out.push_back(static_cast<unsigned>(byte));
  return out;
}
template <class Array>
Result<Array> bytes_of(const nlohmann::json& message, const char* field) {
  Array out{};
  const auto found = message.find(field);
  if (found == message.end() || !found->is_array() || found->size() != out.size())
    return Error(ErrorCode::kProtocol, std::string("No bytes ") + field);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>((*found)[i].template get<unsigned>());
  return out;
}

// ---- The second process ----

class Target final : public engine::ReceiverDelegate {
 public:
  explicit Target(Device device) : device_(std::move(device)) {}

  Result<void> prepare(std::uint64_t bytes) {
    CKPT_TRY(memory, DeviceBuffer::create(device_, bytes));
    memory_ = std::move(memory);
    CKPT_TRY(staging, engine::StagingPool::create(device_, kStagingBytes));
    staging_ = std::move(staging);
    CKPT_TRY(transport, transport::make_ucx_transport({}));
    transport_ = std::move(transport);
    return ok();
  }
  Result<nlohmann::json> open(const nlohmann::json& request) {
    engine::ReceiverOptions options;
    options.id = kIdentity;
    CKPT_TRY(key, bytes_of<track::FingerprintKey>(request, "key"));
    CKPT_TRY(token, bytes_of<transport::SessionToken>(request, "token"));
    options.key = key;
    options.token = token;
    verified_ = false;
    failure_.reset();
    CKPT_TRY(receiver, engine::Receiver::create(device_, *staging_, *transport_, *this, options));
    receiver_ = std::move(receiver);
    return nlohmann::json{{"addresses", receiver_->addresses()}};
  }
  void close() { receiver_.reset(); }
  Result<void> wait_verified() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return verified_ || failure_; });
    if (!verified_) return *failure_;
    return ok();
  }

 private:
  Result<engine::PlanPlaces> on_plan(std::span<const std::byte> bytes) override {
    Plan plan;
    if (bytes.size() != sizeof plan) return Error(ErrorCode::kProtocol, "This is not a plan of the bench");
    std::memcpy(&plan, bytes.data(), sizeof plan);
    if (plan.bytes > memory_->bytes()) return Error(ErrorCode::kRefused, "The source's region is larger");
    engine::PlanPlaces places;
    places.chunk_bytes = plan.chunk_bytes;
    places.regions.push_back({kRegion, kGeneration, memory_->pointer(), plan.bytes, nullptr});
    return places;
  }
  Result<void> on_manifest(std::span<const std::byte>, const track::Fingerprint&,
                           const engine::ReceivedHostState&) override {
    return ok();
  }
  void on_verified(const engine::VerifiedReport&, engine::ReceivedHostState) override {
    const std::lock_guard lock(mutex_);
    verified_ = true;
    changed_.notify_all();
  }
  void on_failed(const Error& error) override {
    const std::lock_guard lock(mutex_);
    failure_ = error;
    changed_.notify_all();
  }

  Device device_;
  std::unique_ptr<DeviceBuffer> memory_;
  std::unique_ptr<engine::StagingPool> staging_;
  std::unique_ptr<transport::Transport> transport_;
  std::mutex mutex_;  // guards verified_ and failure_
  std::condition_variable changed_;
  bool verified_ = false;
  std::optional<Error> failure_;
  std::unique_ptr<engine::Receiver> receiver_;  // the last member, so that it is destroyed first, because it
                                                // calls this delegate
};

}  // namespace

Result<void> run_engine_target(Link& link) {
  CKPT_TRY(ordinal, target_ordinal());
  CKPT_TRY(device, Device::open(ordinal));
  Target target(std::move(device));
  while (true) {
    CKPT_TRY(request, link.receive());
    CKPT_TRY(order, text_of(request, "order"));
    nlohmann::json answer = nlohmann::json::object();
    if (order == "prepare") {
      CKPT_TRY(bytes, number_of(request, "bytes"));
      CKPT_TRYV(target.prepare(bytes));
    } else if (order == "open") {
      CKPT_TRY(opened, target.open(request));
      answer = opened;
    } else if (order == "verified") {
      CKPT_TRYV(target.wait_verified());
    } else {
      target.close();
    }
    CKPT_TRYV(link.send(answer));
  }
}

// ---- This process ----

Result<std::unique_ptr<EnginePair>> EnginePair::create(const std::string& program, std::uint64_t bytes) {
  CKPT_TRY(device, Device::open(0));
  std::unique_ptr<EnginePair> pair(new EnginePair(std::move(device)));
  CKPT_TRY(target, Child::start(program, "engine-target"));
  pair->target_ = std::move(target);
  CKPT_TRY(memory, DeviceBuffer::create(pair->device_, bytes));
  pair->memory_ = std::move(memory);
  CKPT_TRY(staging, engine::StagingPool::create(pair->device_, kStagingBytes));
  pair->staging_ = std::move(staging);
  CKPT_TRY(transport, transport::make_ucx_transport({}));
  pair->transport_ = std::move(transport);
  CKPT_TRYV(pair->target_->ask({{"order", "prepare"}, {"bytes", bytes}}));
  pair->meter_.emplace(std::vector<pid_t>{pair->target_->pid()});
  return pair;
}

Result<std::unique_ptr<EngineSession>> EnginePair::begin(const SessionSetup& setup) {
  engine::SenderOptions options;
  options.id = kIdentity;
  CKPT_TRYV(ckpt::fill_random(options.key));
  CKPT_TRYV(ckpt::fill_random(options.token));
  options.same_host = setup.same_host;
  options.bandwidth = setup.bandwidth;
  options.codec = setup.codec;
  options.shadow_memory_bytes = setup.shadow_memory_bytes;
  CKPT_TRY(opened,
           target_->ask(
               {{"order", "open"}, {"key", numbers_of(options.key)}, {"token", numbers_of(options.token)}}));
  const auto addresses = opened.find("addresses");
  if (addresses == opened.end() || !addresses->is_array())
    return Error(ErrorCode::kProtocol, "The target named no addresses");
  for (const auto& address : *addresses) options.addresses.push_back(address.get<std::string>());

  std::unique_ptr<EngineSession> session(new EngineSession(*this));
  CKPT_TRY(sender, engine::Sender::create(device_, *staging_, *transport_, options));
  session->sender_ = std::move(sender);
  CKPT_TRYV(session->sender_->connect());
  const Plan plan{memory_->bytes(), options.chunk_bytes};
  CKPT_TRYV(session->sender_->send_plan(std::as_bytes(std::span(&plan, 1))));
  CKPT_TRYV(
      session->sender_->add_region({kRegion, kGeneration, memory_->pointer(), memory_->bytes(), nullptr}));
  // As in a mover, the link is measured first. A codec's choice depends on the result. Also, the first
  // message of the session is then not the first message of its connection.
  CKPT_TRYV(session->sender_->measure_link());
  return session;
}

Result<void> EnginePair::finish() {
  return target_->finish();
}

EngineSession::~EngineSession() = default;

Result<RoundRun> EngineSession::round() {
  pair_.meter_->restart();
  CKPT_TRY(report, sender_->run_round());
  return RoundRun{report, report.end_ns - report.begin_ns, pair_.meter_->elapsed()};
}

Result<void> EngineSession::verify_ahead() {
  sender_->begin_verify();
  CKPT_TRYV(sender_->wait_verified());
  return ok();
}

Result<engine::RoundReport> EngineSession::verify() {
  CKPT_TRY(report, sender_->run_final({}));
  const std::byte manifest[8] = {};
  CKPT_TRYV(sender_->commit(manifest));
  CKPT_TRYV(pair_.target_->ask({{"order", "verified"}}));
  return report;
}

Result<void> EngineSession::end() {
  sender_.reset();
  CKPT_TRYV(pair_.target_->ask({{"order", "close"}}));
  return ok();
}

}  // namespace ckpt::bench
