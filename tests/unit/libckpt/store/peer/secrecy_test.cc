// SPDX-License-Identifier: Apache-2.0
// Tests that a relay on the link reads no content of a checkpoint store and changes no content undetected.
// Also tests that unknown connections do not block clients.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "tests/unit/libckpt/store/peer/fixture.h"

namespace ckpt::checkpoint_store::test {
namespace {

// A relay between a client and the server. It records all bytes, and may change a byte that the client sends.
class Tap {
 public:
  explicit Tap(const FileServer& server)
      : server_(server.address()), listening_(must(listen_at("127.0.0.1:0"))) {
    accepting_ = std::thread([this] {
      while (!ending_) {
        auto client = accept_from(listening_.socket, std::chrono::milliseconds(20));
        if (!client) continue;
        carrying_.emplace_back(
            [this, socket = std::make_shared<UniqueFd>(*std::move(client))] { carry(*socket); });
      }
    });
  }
  ~Tap() {
    ending_ = true;
    accepting_.join();
    for (std::thread& thread : carrying_) thread.join();
  }
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;
  [[nodiscard]] const std::string& address() const { return listening_.address; }
  void change_byte(std::size_t at) { changed_at_ = at; }
  bool has_seen(const Bytes& what) {
    const std::lock_guard lock(mutex_);
    return std::search(seen_.begin(), seen_.end(), what.begin(), what.end()) != seen_.end();
  }
  std::size_t seen() {
    const std::lock_guard lock(mutex_);
    return seen_.size();
  }

 private:
  void carry(const UniqueFd& client) {
    const UniqueFd server = connect_to(server_);
    std::size_t sent = 0;
    while (!ending_) {
      pollfd items[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      if (::poll(items, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i)
        if (items[i].revents != 0 && !pass(items[i].fd, items[1 - i].fd, i == 0 ? &sent : nullptr)) return;
    }
  }
  bool pass(int from, int to, std::size_t* sent) {
    Bytes piece(65536);
    const ssize_t got = ::recv(from, piece.data(), piece.size(), 0);
    if (got <= 0) return false;
    piece.resize(static_cast<std::size_t>(got));
    {
      const std::lock_guard lock(mutex_);
      seen_.insert(seen_.end(), piece.begin(), piece.end());
    }
    if (sent != nullptr) {
      if (changed_at_ >= *sent && changed_at_ < *sent + piece.size())
        piece[changed_at_ - *sent] ^= std::byte{1};
      *sent += piece.size();
    }
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t put = ::send(to, piece.data() + done, piece.size() - done, MSG_NOSIGNAL);
      pollfd item{to, POLLOUT, 0};
      if (put < 0 && (errno != EAGAIN || ::poll(&item, 1, 5000) <= 0)) return false;
      done += put < 0 ? 0 : static_cast<std::size_t>(put);
    }
    return true;
  }

  const std::string server_;
  ListeningSocket listening_;
  std::atomic<bool> ending_{false};
  std::atomic<std::size_t> changed_at_{~std::size_t{0}};
  std::mutex mutex_;
  Bytes seen_;
  std::list<std::thread> carrying_;
  std::thread accepting_;
};

using CheckpointStoreSecrecy = Peers;

RemoteFiles::Settings settings_of(std::string address, std::vector<std::byte> token) {
  RemoteFiles::Settings settings;
  settings.address = std::move(address);
  settings.token = std::move(token);
  settings.folder = "node-b";
  return settings;
}

TEST_F(CheckpointStoreSecrecy, TokenAndContentAreEncryptedOnTheLink) {
  must(CheckpointStore::open(disk(), {}));
  auto server = serve(0);
  Tap tap(*server);
  const auto token = must(server->grant(grant_of(true, false)));
  const Bytes canary = random_bytes(100'000, 5);
  {
    auto files = must(RemoteFiles::connect(settings_of(tap.address(), token)));
    const auto lock = must(files->lock("node-b/lock"));
    must(files->make_folder("node-b/jobs/job"));
    auto file = must(files->create("node-b/jobs/job/job"));
    must(file->write_at(0, canary));
    Bytes read(canary.size());
    EXPECT_EQ(must(file->read_at(0, read)), canary.size());
    EXPECT_EQ(read, canary);
  }
  EXPECT_GT(tap.seen(), 2 * canary.size());
  EXPECT_FALSE(tap.has_seen(Bytes(canary.begin(), canary.begin() + 64)));
  EXPECT_FALSE(tap.has_seen(token));
  const std::string identity = must(frame_key_of(token)).identity;
  const auto bytes = std::as_bytes(std::span(identity));
  EXPECT_TRUE(tap.has_seen(Bytes(bytes.begin(), bytes.end()))) << "the only thing that is read";
}

TEST(CheckpointStoreKey, KeyMatchesTheKeyOfEarlierBuilds) {
  std::vector<std::byte> token(32);
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(i);
  const FrameKey key = must(frame_key_of(token));
  EXPECT_EQ(key.identity, "e827a6f6a6763823613c035492ce5951");
  EXPECT_EQ(key.key.bytes()[0], 0xc8);
  EXPECT_EQ(key.key.bytes()[31], 0x6c);
}

TEST_F(CheckpointStoreSecrecy, AByteChangedInTransitEndsTheLink) {
  must(CheckpointStore::open(disk(), {}));
  auto server = serve(0);
  Tap tap(*server);
  const auto token = must(server->grant(grant_of(true, false)));
  auto files = must(RemoteFiles::connect(settings_of(tap.address(), token)));
  const auto lock = must(files->lock("node-b/lock"));
  must(files->make_folder("node-b/jobs/job"));
  auto file = must(files->create("node-b/jobs/job/job"));
  tap.change_byte(50'000);
  const auto written = file->write_at(0, random_bytes(100'000, 6));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(must(read_file(disk() + "/jobs/job/job", 1 << 20)), "") << "nothing of the message is used";
}

TEST_F(CheckpointStoreSecrecy, ManyUnknownConnectionsDoNotBlockAClient) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  std::list<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(connect_to(server->address()));
  EXPECT_TRUE(RemoteFiles::connect(settings_of(server->address(), token)));
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
