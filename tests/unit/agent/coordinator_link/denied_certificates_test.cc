// SPDX-License-Identifier: Apache-2.0
// Tests of the list of denied certificates, sent by a coordinator that the test plays.
#include "agent/coordinator_link/denied_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "tests/unit/agent/coordinator_link/linked_agent.h"

namespace ckpt::agent {
namespace {

class DeniedCertificatesTest : public LinkedAgent {
 protected:
  DeniedCertificatesTest() {
    part_.emplace(*link_, denied_, file_, pool_, io_.get_executor(), [this] { ++changes_; });
    connect();
  }
  void deny(std::vector<std::string> serials) {
    wire::DenyCertificates list;
    list.serials = std::move(serials);
    coordinator_->send(list);
  }
  // Returns the list that an agent would load at a start now.
  [[nodiscard]] std::set<std::string> kept() const {
    tls::DeniedSerials loaded;
    const auto read = DeniedCertificates::load(file_, loaded);
    EXPECT_TRUE(read) << read.error().to_string();
    return loaded.all();
  }
  void await_kept(const std::set<std::string>& serials) {
    await_event(io_, "the file has the list", [&] { return kept() == serials; });
  }

  std::shared_ptr<tls::DeniedSerials> denied_ = std::make_shared<tls::DeniedSerials>();
  const std::string file_ = folder_ / "denied";
  int changes_ = 0;
  std::optional<DeniedCertificates> part_;
  asio::thread_pool pool_{1};
};

TEST_F(DeniedCertificatesTest, DenyListAppliesImmediatelyAndAfterARestart) {
  deny({"ab0c", "12"});
  expect_answer_to_fence(1);
  EXPECT_TRUE(denied_->contains("ab0c"));
  EXPECT_EQ(changes_, 1);
  await_kept({"12", "ab0c"});
}

TEST_F(DeniedCertificatesTest, SerialMissingFromTheNextListIsAdmittedAgain) {
  deny({"ab0c", "12"});
  deny({"12"});
  expect_answer_to_fence(1);
  EXPECT_FALSE(denied_->contains("ab0c"));
  await_kept({"12"});
}

TEST_F(DeniedCertificatesTest, RepeatedListChangesNothing) {
  deny({"ab0c"});
  deny({"AB:0C"});
  expect_answer_to_fence(1);
  EXPECT_EQ(changes_, 1);
}

TEST_F(DeniedCertificatesTest, ListReceivedDuringAWriteIsStoredToo) {
  std::promise<void> go_on;
  // This task blocks the only thread of the pool.
  asio::post(pool_, [held = go_on.get_future().share()] { held.wait(); });
  deny({"1"});
  deny({"2"});
  expect_answer_to_fence(1);
  EXPECT_EQ(changes_, 2);
  go_on.set_value();
  await_kept({"2"});
}

TEST_F(DeniedCertificatesTest, MalformedListEndsTheConnectionAndKeepsThePreviousList) {
  deny({"ab0c"});
  deny({"no serial"});
  take_hello(2);
  EXPECT_TRUE(denied_->contains("ab0c"));
  EXPECT_EQ(denied_->all().size(), 1U);
  EXPECT_EQ(changes_, 1);
}

TEST_F(DeniedCertificatesTest, ListAppliesEvenIfItsFileCannotBeWritten) {
  std::filesystem::create_directories(file_ + "/in the way");
  deny({"ab0c"});
  expect_answer_to_fence(1);
  EXPECT_TRUE(denied_->contains("ab0c"));
  std::filesystem::remove_all(file_);
  deny({"12"});
  await_kept({"12"});
}

TEST_F(DeniedCertificatesTest, NodeWithoutAFileDeniesNoCertificate) {
  EXPECT_TRUE(kept().empty());
}

TEST_F(DeniedCertificatesTest, DamagedFileIsAnErrorThatNamesTheRemedy) {
  write("denied", "not a serial\n");
  tls::DeniedSerials loaded;
  const auto read = DeniedCertificates::load(file_, loaded);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(read.error().to_string(), testing::HasSubstr("remove this file"));
}

}  // namespace
}  // namespace ckpt::agent
