// SPDX-License-Identifier: Apache-2.0
#include "agent/mover_client/mover_link.h"

namespace ckpt::agent {

Result<std::shared_ptr<MoverLink>> MoverLink::create(const asio::any_io_executor& executor, UniqueFd socket,
                                                     Handlers handlers) {
  CKPT_TRY(packets, PacketLink::create(executor, std::move(socket), mover::kMaxPacketBytes));
  std::shared_ptr<MoverLink> link(new MoverLink(packets));
  auto shared = std::make_shared<Handlers>(std::move(handlers));
  PacketLink::Handlers below;
  below.packet = [shared, weak = std::weak_ptr(packets)](Packet packet) {
    auto message = mover::decode_message(packet.bytes);
    if (message && mover::descriptors_of(*message) != packet.descriptors.size()) {
      message = Error(ErrorCode::kProtocol, "A mover's message came with a wrong number of descriptors");
    }
    if (message) return shared->message(mover::Packet(*std::move(message), std::move(packet.descriptors)));
    if (auto open = weak.lock()) open->close();
    shared->closed(std::move(message).error());
  };
  below.closed = [shared](Error error) { shared->closed(std::move(error)); };
  packets->start(std::move(below));
  return link;
}

Result<void> MoverLink::send(const mover::Message& message, std::vector<UniqueFd> descriptors) {
  CKPT_TRY(bytes, mover::encode_message(message));
  Packet packet;
  packet.bytes = std::move(bytes);
  packet.descriptors = std::move(descriptors);
  packets_->send(std::move(packet));
  return ok();
}

}  // namespace ckpt::agent
