// SPDX-License-Identifier: Apache-2.0
// Tests of Unix sockets with a path, and of their folders. This test's own process has these sockets.
#include "agent/host_process/sockets/named_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

class NamedSocketsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(place_);
    ASSERT_EQ(::chmod(place_.c_str(), 01777), 0);  // the mode of /tmp
    ASSERT_EQ(::mkdir(own_.c_str(), 0750), 0);
    bind();
  }
  void bind() {
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // Returns the named sockets and folders of this process, reduced to this test's socket.
  [[nodiscard]] NamedSockets found() const {
    auto all = named_sockets_of(::getpid());
    EXPECT_TRUE(all.has_value());
    NamedSockets sockets = *std::move(all);
    std::erase_if(sockets.paths, [this](const std::string& path) { return path != path_; });
    std::erase_if(sockets.folders, [this](const SocketFolder& folder) { return folder.path != own_; });
    return sockets;
  }
  void write_image(const std::vector<SocketFolder>& folders) const {
    SocketFolders list;
    list.folders = folders;
    const auto bytes = wire::encode(list);
    std::ofstream(folder_ / "socket-folders.img", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  TemporaryFolder folder_;
  const std::string place_ = folder_ / "place";
  const std::string own_ = place_ + "/own";
  const std::string path_ = own_ + "/socket";
  UniqueFd socket_;
};

TEST_F(NamedSocketsTest, SocketFolderIsRecreatedAndRemoved) {
  const NamedSockets sockets = found();
  ASSERT_EQ(sockets.paths, std::vector<std::string>{path_});
  ASSERT_EQ(sockets.folders.size(), 1u);
  EXPECT_EQ(sockets.folders[0].mode, 0750u);
  write_image(sockets.folders);
  remove_left(sockets);
  EXPECT_TRUE(std::filesystem::exists(path_)) << "the socket is bound still";
  socket_.reset();
  remove_left(sockets);
  EXPECT_FALSE(std::filesystem::exists(own_));

  EXPECT_TRUE(why_no_folder(sockets.folders).empty());
  const auto made = make_socket_folders(folder_ / "");
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  ASSERT_EQ(*made, std::vector<std::string>{own_});
  struct stat facts {};
  ASSERT_EQ(::stat(own_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u);
  bind();
  socket_.reset();
  remove_folders(*made);
  EXPECT_FALSE(std::filesystem::exists(own_));
}

TEST_F(NamedSocketsTest, ExistingSocketFolderIsKept) {
  write_image(found().folders);
  const auto made = make_socket_folders(folder_ / "");
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(made->empty());
}

TEST_F(NamedSocketsTest, MissingFolderIsRefusedByNameIfItsParentIsNotWorldWritable) {
  ASSERT_EQ(::chmod(place_.c_str(), 0755), 0);
  const NamedSockets sockets = found();
  write_image(sockets.folders);
  socket_.reset();
  remove_left(sockets);
  EXPECT_TRUE(std::filesystem::exists(path_)) << "nodes may share that folder";
  std::filesystem::remove_all(own_);
  const auto problems = why_no_folder(sockets.folders);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find(own_ + ", in which the program has a socket, does not exist"),
            std::string::npos);
  EXPECT_EQ(make_socket_folders(folder_ / "").error().code(), ErrorCode::kRefused);
  EXPECT_FALSE(std::filesystem::exists(own_));
}

TEST_F(NamedSocketsTest, MalformedListsAreRefused) {
  SocketFolder folder;
  folder.path = "relative";
  write_image({folder});
  EXPECT_EQ(make_socket_folders(folder_ / "").error().code(), ErrorCode::kCorrupt);
  folder.path = std::string("/a\0b", 4);
  write_image({folder});
  EXPECT_EQ(make_socket_folders(folder_ / "").error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace ckpt::agent::host
