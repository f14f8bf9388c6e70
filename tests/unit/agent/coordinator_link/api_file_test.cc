// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/api_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

class ApiFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/apiXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    write("token", "secret\n");
    name("token");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& file) const { return folder_ + "/" + file; }
  void write(const std::string& file, const std::string& text) const {
    ASSERT_TRUE(write_file_durably(path(file), text, 0600));
  }
  void name(const std::string& token) const {
    write("api.json", R"({"agent_address":"unix:/a","agent_token_file":")" + path(token) + "\"}");
  }
  std::string folder_;
};

TEST_F(ApiFileTest, TokenFileOfTheOwnerIsRead) {
  EXPECT_EQ(address_in_api_file(path("api.json")).value(), "unix:/a");
  EXPECT_EQ(token_by_api_file(path("api.json")).value(), "secret");
}

TEST_F(ApiFileTest, TokenFileReadableByOtherUsersIsRefused) {
  ASSERT_EQ(::chmod(path("token").c_str(), 0644), 0);  // world-readable, as /etc/passwd
  EXPECT_EQ(token_by_api_file(path("api.json")).error().code(), ErrorCode::kRefused);
}

TEST_F(ApiFileTest, TokenFileOfAnotherOwnerIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(path("api.json").c_str(), 65534, 65534), 0);
  const auto refused = token_by_api_file(path("api.json"));
  ASSERT_FALSE(refused);  // the token belongs to root, as /etc/shadow does
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_EQ(refused.error().to_string().find("secret"), std::string::npos);
  ASSERT_EQ(::chown(path("token").c_str(), 65534, 65534), 0);
  EXPECT_EQ(token_by_api_file(path("api.json")).value(), "secret");
}

TEST_F(ApiFileTest, LinksAndFoldersAreRefusedAsTokenFiles) {
  std::filesystem::create_symlink(path("token"), path("link"));
  name("link");
  EXPECT_FALSE(token_by_api_file(path("api.json")));
  std::filesystem::create_directory(path("folder"));
  name("folder");
  EXPECT_FALSE(token_by_api_file(path("api.json")));
  write("api.json", "[]");
  EXPECT_EQ(token_by_api_file(path("api.json")).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ckpt::agent
