// SPDX-License-Identifier: Apache-2.0
// A checkpoint store's folder with a tier in memory, and job content for it. The tier is another folder: only
// the folder in which a pack lies matters.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <filesystem>

#include "libckpt/store/peer/file_server.h"
#include "libckpt/store/peer/remote_files.h"
#include "libckpt/store/peer/route.h"
#include "tests/unit/libckpt/store/local/support.h"

namespace ckpt::checkpoint_store::test {

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gm-peer-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    home_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(home_); }

  [[nodiscard]] std::string disk() const { return home_ + "/vault"; }
  [[nodiscard]] std::string memory() const { return home_ + "/memory"; }

  std::unique_ptr<FileServer> serve(std::uint64_t memory_limit) {
    FileServer::Settings settings;
    settings.folder = disk();
    settings.memory = memory_limit == 0 ? "" : memory();
    settings.memory_limit_bytes = memory_limit;
    settings.listen = "127.0.0.1:0";
    return must(FileServer::create(settings));
  }

  static FileGrant grant_of(bool writes, bool into_memory) {
    FileGrant grant;
    grant.job = "job";
    grant.writes = writes;
    grant.into_memory = into_memory;
    grant.lasts = std::chrono::hours(1);
    return grant;
  }

  static Route route_to(const FileServer& server, std::vector<std::byte> token) {
    Route route;
    route.folder = "node-b";
    route.peer_address = server.address();
    route.peer_token = std::move(token);
    return route;
  }

  // Returns the local route with the memory tier.
  [[nodiscard]] Route here() const {
    Route route;
    route.folder = disk();
    route.memory = memory();
    return route;
  }

  static Content some_content(std::uint64_t seed, std::size_t bytes = 20'000) {
    Content content;
    content.regions[1] = random_bytes(bytes, seed);
    content.regions[2] = Bytes(3 * kTestChunk);
    content.blobs["host"] = random_bytes(1000, seed + 1);
    return content;
  }

  static std::vector<std::string> packs_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/jobs/job/packs", ignored))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string home_;
};

// Connects to an address of the form "127.0.0.1:PORT".
inline UniqueFd connect_to(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return socket;
}

}  // namespace ckpt::checkpoint_store::test
