// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/mover_messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace ckpt::wire::mover {
namespace {

struct Ends {
  Ends() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
  UniqueFd a, b;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

AttachRegions regions(std::size_t count) {
  AttachRegions m;
  m.session = SessionKey(7, 0);
  for (std::size_t i = 0; i < count; ++i) m.regions.emplace_back(i + 1, 1, 2 << 20);
  return m;
}

TEST(MoverMessages, MessagesAreSentWithTheirDescriptors) {
  Ends ends;
  auto file = make_memory_file("test", 100);
  ASSERT_TRUE(file.has_value());
  const std::vector<int> fds(kMaxRegions, file->get());
  ASSERT_TRUE(send_message(ends.a.get(), regions(kMaxRegions), fds).has_value());
  auto packet = receive_message(ends.b.get());
  ASSERT_TRUE(packet.has_value()) << packet.error().to_string();
  EXPECT_EQ(packet->fds.size(), kMaxRegions);
  const auto* got = std::get_if<AttachRegions>(&packet->message);
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->session, SessionKey(7, 0));
  EXPECT_EQ(got->regions.back().id, kMaxRegions);
}

TEST(MoverMessages, TheLargestTensorBatchFitsIntoAPacket) {
  AttachTensors m;
  m.tensors.resize(kMaxTensors);
  for (TensorInfo& tensor : m.tensors) {
    tensor.name = std::string(kMaxTensorNameBytes, 'n');
    tensor.shape.resize(kMaxTensorDims);
  }
  EXPECT_TRUE(encode_message(m).has_value());
}

TEST(MoverMessages, WrongNumbersOfDescriptorsAreRefusedAndClosed) {
  Ends ends;
  EXPECT_FALSE(send_message(ends.a.get(), regions(2), {}).has_value());
  EXPECT_FALSE(send_message(ends.a.get(), EndSession(), std::vector<int>{0}).has_value());
  // A peer sends the invalid message anyway: the message needs a descriptor and has none.
  auto packet = encode_message(regions(1));
  ASSERT_TRUE(packet.has_value());
  const auto& bytes = *packet;
  ASSERT_EQ(::send(ends.a.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  const std::size_t before = open_descriptors();
  auto received = receive_message(ends.b.get());
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(MoverMessages, RegionsToBeFilledHaveTwoDescriptorsEach) {
  Ends ends;
  FillRegions m;
  m.session = SessionKey(7, kFillRank);
  m.regions = regions(kMaxFillRegions).regions;
  const std::vector<int> fds(2 * kMaxFillRegions, ends.a.get());
  ASSERT_TRUE(send_message(ends.a.get(), m, fds).has_value());
  auto packet = receive_message(ends.b.get());
  ASSERT_TRUE(packet.has_value()) << packet.error().to_string();
  EXPECT_EQ(packet->fds.size(), 2 * kMaxFillRegions);
  EXPECT_FALSE(send_message(ends.a.get(), m, std::span(fds).first(kMaxFillRegions)).has_value());
}

// Sends a packet with the given number of descriptors, without the checks of send_message().
void send_anyway(int socket, std::span<const std::byte> bytes, std::size_t descriptors) {
  std::vector<std::byte> control(CMSG_SPACE(descriptors * sizeof(int)));
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
  const std::vector<int> fds(descriptors, socket);
  std::memcpy(CMSG_DATA(rights), fds.data(), descriptors * sizeof(int));
  ASSERT_EQ(::sendmsg(socket, &header, 0), static_cast<ssize_t>(bytes.size()));
}

TEST(MoverMessages, MessagesAboveThePacketLimitAreNeitherSentNorReceived) {
  Ends ends;
  FillRegions m;
  m.session = SessionKey(7, kFillRank);
  m.regions = regions(kMaxFillRegions).regions;
  auto packet = encode_message(m);
  ASSERT_TRUE(packet.has_value());
  m.regions = regions(kMaxFillRegions + 1).regions;
  const std::vector<int> fds(2 * m.regions.size(), ends.a.get());
  EXPECT_EQ(send_message(ends.a.get(), m, fds).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(
      send_message(ends.a.get(), regions(kMaxRegions + 1), std::vector<int>(kMaxRegions + 1)).has_value());
  // A peer sends too many descriptors anyway.
  const std::size_t before = open_descriptors();
  send_anyway(ends.a.get(), *packet, kMaxRegions + 2);
  EXPECT_EQ(receive_message(ends.b.get()).error().code(), ErrorCode::kProtocol);
  std::vector<std::byte> longer(packet->begin(),
                                packet->begin() + 8);  // the packet's header
  const auto body = encode(m);
  longer.insert(longer.end(), body.begin(), body.end());
  send_anyway(ends.a.get(), longer, kMaxRegions);
  EXPECT_EQ(receive_message(ends.b.get()).error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(MoverMessages, AClosedSocketIsUnavailable) {
  Ends ends;
  ends.a.reset();
  auto received = receive_message(ends.b.get());
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code(), ErrorCode::kUnavailable);
  auto sent = send_message(ends.b.get(), EndSession());
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code(), ErrorCode::kUnavailable);
}

TEST(MoverMessages, LastMessageOfAPeerWithUnreadMessagesIsReceived) {
  Ends ends;
  ASSERT_TRUE(send_message(ends.b.get(), EndSession()).has_value());
  ASSERT_TRUE(send_message(ends.a.get(), EndSession()).has_value());
  ends.a.reset();  // closes with an unread message: Linux reports ECONNRESET to the other side, and then
                   // delivers the sent bytes
  EXPECT_TRUE(receive_message(ends.b.get()).has_value());
  const auto end = receive_message(ends.b.get());
  ASSERT_FALSE(end.has_value());
  EXPECT_EQ(end.error().code(), ErrorCode::kUnavailable);
}

TEST(MoverMessages, RandomDamageGivesAMessageOrAnError) {
  StartSource start;
  start.addresses = {"ucx:1", "ucx:2"};
  FillRegions fill;
  fill.regions = regions(3).regions;
  DroppedRegions dropped;
  dropped.regions = {1, 2, 3};
  const std::vector<Message> messages{regions(3), start, Progress(), Verified(), fill, dropped};
  std::mt19937 random(3);
  for (const Message& message : messages) {
    const auto good = encode_message(message);
    ASSERT_TRUE(good.has_value());
    for (int i = 0; i < 5000; ++i) {
      auto bytes = *good;
      for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
      if (random() % 3 == 0) bytes.resize(random() % bytes.size());
      auto decoded = decode_message(bytes);
      if (decoded) {
        EXPECT_LE(descriptors_of(*decoded), kMaxRegions);
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::wire::mover
