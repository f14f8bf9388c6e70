// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/network_check.h"

#include "libckpt/base/clock.h"

namespace ckpt::mover {
namespace {

constexpr Nanos kMaxLife = 30'000'000'000;
constexpr Nanos kPollInterval = 1'000'000'000;  // maximum duration of a wait; wake() interrupts the wait
                                                // earlier

}  // namespace

class NetworkCheck::End : public transport::LaneHandler {
 public:
  End(NetworkCheck& check, Side side) : check_(check), side_(side) {}
  void on_open() override {
    reached_ = now_ns();
    if (side_ == Side::kReaches) report();
  }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return {}; }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override {
    check_.fail(Error(ErrorCode::kProtocol, "The lane of a network check carried an unexpected message"));
  }
  void on_sent(std::uint64_t) override {}
  // Reports that the lane was closed. The listening side stays until its peer has left, because its last
  // message may be in transit.
  void on_closed(const Error& error) override {
    if (reached_ == 0) return check_.fail(error);
    if (side_ == Side::kListens) report();
  }

 private:
  void report() {
    messages::PeerReached reached;
    reached.session = check_.key_;
    reached.connect_ns = reached_ - began_;
    check_.agent_.send(reached);
  }

  NetworkCheck& check_;
  const Side side_;
  const Nanos began_ = now_ns();
  Nanos reached_ = 0;
};

NetworkCheck::NetworkCheck(Gpu& gpu, AgentLink& agent, const messages::OpenSession& open,
                           const SessionSecrets& secrets)
    : Session(gpu, agent, open, secrets) {}

NetworkCheck::~NetworkCheck() {
  ending_.store(true);
  if (lane_) lane_->wake();
  if (thread_.joinable()) thread_.join();
}

bool NetworkCheck::handle(messages::Packet& packet) {
  if (std::holds_alternative<messages::StartTarget>(packet.message)) {
    if (auto listening = listen(); !listening) fail(listening.error());
    return true;
  }
  const auto* request = std::get_if<messages::ReachPeer>(&packet.message);
  if (request == nullptr) return false;
  if (auto reaching = reach(*request); !reaching) fail(reaching.error());
  return true;
}

Result<void> NetworkCheck::begin(Side side) {
  if (lane_) return Error(ErrorCode::kInvalidArgument, "The check has begun already");
  end_ = std::make_unique<End>(*this, side);
  return use_network();
}

Result<void> NetworkCheck::listen() {
  CKPT_TRYV(begin(Side::kListens));
  CKPT_TRY(lane, transport_->listen(secrets_.token, *end_));
  lane_ = std::move(lane);
  messages::Listening listening;
  listening.session = key_;
  listening.addresses = {lane_->address()};
  agent_.send(listening);
  thread_ = std::thread([this] { drive(); });
  return ok();
}

Result<void> NetworkCheck::reach(const messages::ReachPeer& request) {
  CKPT_TRYV(begin(Side::kReaches));
  CKPT_TRY(lane, transport_->connect(request.address, secrets_.token, *end_));
  lane_ = std::move(lane);
  thread_ = std::thread([this] { drive(); });
  return ok();
}

void NetworkCheck::drive() {
  const Nanos deadline = now_ns() + kMaxLife;
  while (!ending_.load() && !lane_->closed() && now_ns() < deadline) {
    if (!lane_->progress()) lane_->wait(kPollInterval);
  }
}

}  // namespace ckpt::mover
