// SPDX-License-Identifier: Apache-2.0
#include "coordinator/settings/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "libckpt/base/fd.h"

namespace ckpt::coordinator {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/configXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Result<Config> load(const std::string& text, const std::string& home = {}) {
    EXPECT_TRUE(write_file_durably(folder_ + "/c.toml", text));
    return load_config(folder_ + "/c.toml", home);
  }
  std::string folder_;
};

TEST_F(ConfigTest, CoordinatorListensOnUnixSocketsByDefault) {
  const auto config = load_config("", "/h");
  ASSERT_TRUE(config);
  EXPECT_EQ(config.value().home, "/h");
  EXPECT_EQ(config.value().api_address, "");
  EXPECT_EQ(config.value().agent_address, "");
}

TEST_F(ConfigTest, CommandLineOverridesTheFile) {
  const auto config =
      load("home = \"/from-file\"\nlease_term_ms = 2000\nmetrics_without_token = true\n", "/from-line");
  ASSERT_TRUE(config);
  EXPECT_EQ(config.value().home, "/from-line");
  EXPECT_EQ(config.value().lease_term_ms, 2000);
  EXPECT_TRUE(config.value().metrics_without_token);
}

TEST_F(ConfigTest, CertificateFilesMustBeSetTogether) {
  const auto config = load("[tls]\nca = \"/c\"\ncertificate = \"/d\"\nkey = \"/k\"\n");
  ASSERT_TRUE(config);
  EXPECT_EQ(config.value().tls, (tls::CertFiles{"/c", "/d", "/k"}));
  EXPECT_FALSE(load("[tls]\n"));
  EXPECT_FALSE(load("[tls]\nca = \"/c\"\nkey = \"/k\"\n"));
  EXPECT_FALSE(load("[tls]\nca = \"/c\"\ncertificate = \"d\"\nkey = \"/k\"\n"));
  EXPECT_FALSE(load("[tls]\nca = \"/c\"\ncertificate = \"/d\"\nkey = \"/k\"\nkeys = \"/k\"\n"));
  EXPECT_FALSE(load("tls = \"/c\"\n"));
}

TEST_F(ConfigTest, UnknownKeysAndValuesOutOfRangeAreRefused) {
  EXPECT_FALSE(load("lease_tern_ms = 2000\n"));
  EXPECT_FALSE(load("lease_term_ms = \"2000\"\n"));
  EXPECT_FALSE(load("lease_term_ms = 1\n"));
  EXPECT_FALSE(load("lease_term_ms = 9223372036854775807\n"));  // would overflow as nanoseconds
  EXPECT_FALSE(load("placement_margin_bytes = -1\n"));
  EXPECT_FALSE(load("placement_margin_bytes = 9223372036854775807\n"));
  EXPECT_FALSE(load("log_level = \"loud\"\n"));
  EXPECT_FALSE(load("this is no toml"));
  EXPECT_FALSE(load_config(folder_ + "/absent.toml", ""));
}

}  // namespace
}  // namespace ckpt::coordinator
