// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/mover_messages.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace ckpt::wire::mover {
namespace {

constexpr std::uint32_t kPacketMagic = 0x564d'5047;  // the magic of a packet: the bytes "GPMV"
constexpr std::uint16_t kPacketVersion = 1;

struct PacketHeader {
  std::uint32_t magic = kPacketMagic;
  std::uint16_t version = kPacketVersion;
  std::uint16_t type = 0;  // the index in the variant, plus 1
};
static_assert(sizeof(PacketHeader) == 8);

template <std::size_t I = 0>
Result<Message> decode_body(std::size_t index, std::span<const std::byte> body) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (index == I) {
      CKPT_TRY(message, decode<std::variant_alternative_t<I, Message>>(body));
      return Message(std::move(message));
    }
    return decode_body<I + 1>(index, body);
  } else {
    return Error(ErrorCode::kProtocol, "Unknown mover message " + std::to_string(index + 1));
  }
}

Result<void> check_counts(const Message& message) {
  if (const auto* m = std::get_if<AttachRegions>(&message);
      m != nullptr && (m->regions.empty() || m->regions.size() > kMaxRegions))
    return Error(ErrorCode::kProtocol,
                 "The message AttachRegions must not have " + std::to_string(m->regions.size()) + " regions");
  if (const auto* m = std::get_if<MadeRegions>(&message);
      m != nullptr && (m->regions.empty() || m->regions.size() > kMaxRegions))
    return Error(ErrorCode::kProtocol,
                 "The message MadeRegions must not have " + std::to_string(m->regions.size()) + " regions");
  if (const auto* m = std::get_if<FillRegions>(&message);
      m != nullptr && (m->regions.empty() || m->regions.size() > kMaxFillRegions))
    return Error(ErrorCode::kProtocol,
                 "The message FillRegions must not have " + std::to_string(m->regions.size()) + " regions");
  if (const auto* m = std::get_if<DroppedRegions>(&message); m != nullptr && m->regions.size() > kMaxRegions)
    return Error(ErrorCode::kProtocol, "The message DroppedRegions must not have " +
                                           std::to_string(m->regions.size()) + " regions");
  if (const auto* m = std::get_if<AttachTensors>(&message); m != nullptr && m->tensors.size() > kMaxTensors)
    return Error(ErrorCode::kProtocol,
                 "The message AttachTensors must not have " + std::to_string(m->tensors.size()) + " tensors");
  return ok();
}

// Returns the error of a socket call. A closed peer is an expected result. Any other error is an error of the
// system.
Error socket_error(int error_number, const char* what) {
  if (error_number == EPIPE || error_number == ECONNRESET || error_number == ENOTCONN)
    return {ErrorCode::kUnavailable, ErrorDomain::kErrno, error_number,
            std::string(what) + ": the other side of the mover's socket has disconnected"};
  return Error::from_errno(error_number, what);
}

std::vector<UniqueFd> take_descriptors(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

std::string_view name_of(const Message& message) noexcept {
  return std::visit([](const auto& m) { return m.kName; }, message);
}

std::size_t descriptors_of(const Message& message) noexcept {
  if (const auto* m = std::get_if<AttachRegions>(&message)) return m->regions.size();
  if (const auto* m = std::get_if<MadeRegions>(&message)) return m->regions.size();
  if (const auto* m = std::get_if<FillRegions>(&message)) return 2 * m->regions.size();
  if (const auto* m = std::get_if<FinalRound>(&message)) return m->host_state_bytes > 0 ? 1 : 0;
  if (const auto* m = std::get_if<Verified>(&message)) return m->host_state_bytes > 0 ? 1 : 0;
  if (std::holds_alternative<StartSnapshot>(message) || std::holds_alternative<HostStateFile>(message))
    return 1;
  if (const auto* m = std::get_if<SnapshotHost>(&message)) return m->host_state_bytes > 0 ? 1 : 0;
  if (const auto* m = std::get_if<RestoreDone>(&message)) return m->host_state_bytes > 0 ? 1 : 0;
  return 0;
}

Result<std::vector<std::byte>> encode_message(const Message& message) {
  if (auto counted = check_counts(message); !counted)
    return Error(ErrorCode::kInvalidArgument, "The message has more entries than a packet may hold")
        .caused_by(std::move(counted).error());
  const std::vector<std::byte> body = std::visit([](const auto& m) { return encode(m); }, message);
  PacketHeader header;
  header.type = static_cast<std::uint16_t>(message.index() + 1);
  std::vector<std::byte> packet(sizeof header + body.size());
  if (packet.size() > kMaxPacketBytes)
    return Error(ErrorCode::kInvalidArgument, "A " + std::string(name_of(message)) + " of " +
                                                  std::to_string(packet.size()) +
                                                  " bytes is longer than a packet");
  std::memcpy(packet.data(), &header, sizeof header);
  std::memcpy(packet.data() + sizeof header, body.data(), body.size());
  return packet;
}

Result<Message> decode_message(std::span<const std::byte> packet) {
  PacketHeader header;
  if (packet.size() < sizeof header || packet.size() > kMaxPacketBytes)
    return Error(ErrorCode::kProtocol,
                 "A mover packet has an invalid length of " + std::to_string(packet.size()) + " bytes");
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.magic != kPacketMagic) return Error(ErrorCode::kProtocol, "This is not a mover packet");
  if (header.version != kPacketVersion)
    return Error(ErrorCode::kNotSupported, "Mover protocol version " + std::to_string(header.version) +
                                               ": agent and mover are different builds");
  if (header.type == 0) return Error(ErrorCode::kProtocol, "Unknown mover message 0");
  CKPT_TRY(message, decode_body(header.type - 1u, packet.subspan(sizeof header)));
  CKPT_TRYV(check_counts(message));
  return message;
}

Result<void> send_message(int socket, const Message& message, std::span<const int> fds) {
  if (fds.size() != descriptors_of(message))
    return Error(ErrorCode::kInvalidArgument,
                 std::string(name_of(message)) + " with " + std::to_string(fds.size()) + " descriptors");
  CKPT_TRY(packet, encode_message(message));
  iovec part{packet.data(), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  // encode_message() refuses messages with more descriptors than this.
  static_assert(2 * kMaxFillRegions <= kMaxRegions);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxRegions * sizeof(int))> control{};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return socket_error(errno, "Cannot send to the mover's socket");
    pollfd poll_fd{socket, POLLOUT, 0};
    if (::poll(&poll_fd, 1, -1) < 0 && errno != EINTR)
      return Error::from_errno("Cannot wait for the mover's socket");
  }
  return ok();
}

Result<Packet> receive_message(int socket) {
  std::vector<std::byte> buffer(kMaxPacketBytes);
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxRegions * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    // ECONNRESET: the other side closed before it had read everything. The error is reported once, before the
    // other side's own last messages.
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0 && errno == EAGAIN)
    return Error(ErrorCode::kTimedOut, "There is no message on the mover's socket");
  if (got < 0) return socket_error(errno, "Cannot receive from the mover's socket");
  if (got == 0)
    return Error(ErrorCode::kUnavailable, "The other side of the mover's socket has disconnected");
  std::vector<UniqueFd> fds = take_descriptors(header);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error(ErrorCode::kProtocol, "A mover packet is too long or has too many descriptors");
  CKPT_TRY(message, decode_message(std::span(buffer).first(static_cast<std::size_t>(got))));
  if (fds.size() != descriptors_of(message))
    return Error(ErrorCode::kProtocol,
                 std::string(name_of(message)) + " with " + std::to_string(fds.size()) + " descriptors");
  return Packet(std::move(message), std::move(fds));
}

}  // namespace ckpt::wire::mover
