// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

namespace ckpt::local {
namespace {

namespace fs = std::filesystem;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 0;
  return count;
}

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "ckpt-local-XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ExportBatch batch_of(std::size_t count) {
  ExportBatch batch;
  batch.sequence = 1;
  for (std::size_t i = 0; i < count; ++i) batch.records.push_back({i + 1, 1, 4096, {}});
  return batch;
}

UniqueFd file_with(const std::string& text) {
  UniqueFd fd = *make_memory_file("test", text.size());
  EXPECT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string content_of(int fd) {
  char buffer[64] = {};
  const ssize_t got = ::pread(fd, buffer, sizeof buffer, 0);
  return std::string(buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
}

TEST(LocalSocket, SocketCarriesMessagesWithSixtyFourDescriptors) {
  auto [left, right] = std::move(*Socket::pair());
  std::vector<UniqueFd> files;
  std::vector<int> numbers;
  for (int i = 0; i < 64; ++i) {
    files.push_back(file_with("file " + std::to_string(i)));
    numbers.push_back(files.back().get());
  }
  const Result<Transfer> sent = left.send({0, 5, batch_of(64)}, numbers);
  ASSERT_TRUE(sent.has_value()) << sent.error().to_string();
  Result<Received> received = right.receive();
  ASSERT_TRUE(received.has_value()) << received.error().to_string();
  ASSERT_EQ(received->transfer, Transfer::kDone);
  ASSERT_EQ(received->descriptors.size(), 64u);
  for (int i = 0; i < 64; ++i) {
    const int fd = received->descriptors[static_cast<std::size_t>(i)].get();
    EXPECT_EQ(content_of(fd), "file " + std::to_string(i));
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(LocalSocket, MoreThanSixtyFourDescriptorsAreNotSent) {
  auto [left, right] = std::move(*Socket::pair());
  const std::vector<int> numbers(65, 0);
  EXPECT_FALSE(left.send_bytes(std::vector<std::byte>(24), numbers).has_value());
}

// Sends raw bytes with descriptors, and bypasses the checks of Socket.
void send_raw(int fd, std::span<const std::byte> bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ASSERT_GE(::sendmsg(fd, &header, 0), 0);
}

TEST(LocalSocket, UnexpectedDescriptorsAreClosedAndRefused) {
  auto [left, right] = std::move(*Socket::pair());
  const std::vector<std::byte> attach = *encode({0, 1, Attach{}});
  const std::size_t before = open_descriptors();
  for (std::size_t count : {1u, 64u, 65u, 200u}) {
    send_raw(left.fd(), attach, std::vector<int>(count, 0));
    const Result<Received> received = right.receive();
    ASSERT_FALSE(received.has_value()) << count << " descriptors";
    EXPECT_EQ(received.error().code(), ErrorCode::kProtocol);
    EXPECT_EQ(open_descriptors(), before) << count << " descriptors";
  }
}

TEST(LocalSocket, OversizedMessageIsRefused) {
  auto [left, right] = std::move(*Socket::pair());
  send_raw(left.fd(), std::vector<std::byte>(kMaxMessageBytes + 1), {});
  const Result<Received> received = right.receive();
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code(), ErrorCode::kProtocol);
}

TEST(LocalSocket, MalformedMessageIsRefused) {
  auto [left, right] = std::move(*Socket::pair());
  send_raw(left.fd(), std::vector<std::byte>(100, std::byte{0x41}), {});
  EXPECT_FALSE(right.receive().has_value());
}

TEST(LocalSocket, NonBlockingTransferReturnsNothingIfEmptyOrFull) {
  auto [left, right] = std::move(*Socket::pair());
  ASSERT_TRUE(left.set_blocking(false).has_value());
  ASSERT_TRUE(right.set_blocking(false).has_value());
  EXPECT_EQ(right.receive()->transfer, Transfer::kNothing);
  int sent = 0;
  while (*left.send({0, 1, Attach{}}) == Transfer::kDone) ++sent;
  EXPECT_GT(sent, 0);
  int got = 0;
  while (right.receive()->transfer == Transfer::kDone) ++got;
  EXPECT_EQ(got, sent);
  EXPECT_EQ(*left.send({0, 1, Attach{}}), Transfer::kDone);
}

TEST(LocalSocket, LastMessageOfAPeerWithUnreadMessagesIsReceived) {
  auto [left, right] = std::move(*Socket::pair());
  ASSERT_EQ(*right.send({0, 1, Attach{}}), Transfer::kDone);
  ASSERT_EQ(*left.send({0, 7, DumpReady{}}), Transfer::kDone);
  left.close();  // closes with an unread message: Linux reports ECONNRESET to the other side, and then
                 // delivers the sent bytes
  const Result<Received> words = right.receive();
  ASSERT_TRUE(words.has_value()) << words.error().to_string();
  ASSERT_EQ(words->transfer, Transfer::kDone);
  EXPECT_EQ(words->message.request, 7U);
  EXPECT_EQ(right.receive()->transfer, Transfer::kClosed);
}

TEST(LocalSocket, ClosedPeerIsDetectedAndSendingIsUnavailable) {
  auto [left, right] = std::move(*Socket::pair());
  left.close();
  EXPECT_EQ(right.receive()->transfer, Transfer::kClosed);
  const Result<Transfer> sent = right.send({0, 1, Attach{}});
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code(), ErrorCode::kUnavailable);
}

void check_listening_at(const std::string& path) {
  Listener listener = std::move(*Listener::create(path));
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(listener.accept()->has_value());
  Result<Socket> client = Socket::connect(path);
  ASSERT_TRUE(client.has_value()) << client.error().to_string();
  EXPECT_GE(client->fd(), 512) << "among the numbers of the program";
  std::optional<Socket> server = std::move(*listener.accept());
  ASSERT_TRUE(server.has_value());
  EXPECT_EQ(server->peer()->pid, ::getpid());
  ASSERT_TRUE(client->send({0, 3, Attach{}}).has_value());
  EXPECT_EQ(server->receive()->message.request, 3u);
}

TEST(LocalSocket, SocketListensAndConnects) {
  const Folder folder;
  check_listening_at(folder.path() + "/a.sock");
  EXPECT_FALSE(fs::exists(folder.path() + "/a.sock")) << "the listener removes its path";
}

TEST(LocalSocket, PathsMayExceedTheSocketAddressLength) {
  const Folder folder;
  std::string deep = folder.path();
  while (deep.size() < 300) deep += "/a-folder-with-a-long-name-that-users-do-have";
  fs::create_directories(deep);
  check_listening_at(deep + "/keeper.sock");
}

TEST(LocalSocket, StaleSocketIsReplacedButOtherFilesAreKept) {
  const Folder folder;
  const std::string path = folder.path() + "/a.sock";
  {
    Listener first = std::move(*Listener::create(path));
    check_listening_at(folder.path() + "/b.sock");
    // Simulates the state after a kill -9: the file exists, without a listener. A second listener reuses the
    // name.
    Listener second = std::move(*Listener::create(path));
    EXPECT_TRUE(Socket::connect(path).has_value());
  }
  ASSERT_TRUE(write_file_durably(path, "precious").has_value());
  EXPECT_FALSE(Listener::create(path).has_value());
  EXPECT_EQ(*read_file(path, 100), "precious");
}

TEST(LocalSocket, ConnectWithoutAListenerIsNotFound) {
  const Folder folder;
  const Result<Socket> socket = Socket::connect(folder.path() + "/none.sock");
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ckpt::local
