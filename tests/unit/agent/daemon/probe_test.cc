// SPDX-License-Identifier: Apache-2.0
// Tests of the agent's probe of a node. Programs in the mover's place answer, fail half-way and hang.
#include "agent/daemon/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ckpt::agent {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

class FakeMover {
 public:
  explicit FakeMover(const std::string& script) {
    std::string folder = "/tmp/probe-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::ofstream(path()) << "#!/bin/sh\n" << script;
    ::chmod(path().c_str(), 0700);
  }
  ~FakeMover() { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/mover"; }
  [[nodiscard]] std::string folder() const { return folder_; }

 private:
  std::string folder_;
};

Json probe(const std::string& mover, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  ProbeSettings settings;
  settings.mover_program = mover;
  settings.criu = "/nonexistent/criu";
  settings.mover_timeout = timeout;
  const auto facts = probe_node(settings);
  EXPECT_TRUE(facts.has_value());
  return facts.has_value() ? *facts : Json();
}

TEST(Probe, ProbeReportsTheFactsOfAllComponents) {
  const FakeMover mover(
      R"(echo '[warning] {not json'; echo '{"driver": {"loaded": true}}'; echo '{"ucx": {"version": "1.2"}}')");
  const Json facts = probe(mover.path());
  EXPECT_EQ(facts["driver"]["loaded"], true);
  EXPECT_EQ(facts["ucx"]["version"], "1.2");
  EXPECT_EQ(facts["criu"]["works"], false);
  EXPECT_THAT(facts["criu"]["problem"].get<std::string>(), HasSubstr("CRIU"));
  EXPECT_FALSE(facts["node"]["kernel"].get<std::string>().empty());
  EXPECT_TRUE(facts["kernel"]["memory_files"].is_boolean());
  EXPECT_TRUE(facts["rdma"].is_array());
}

TEST(Probe, FactsOfACrashedMoverAreKept) {
  const FakeMover mover(R"(echo '{"driver": {"loaded": true}}'; kill -9 $$)");
  const Json facts = probe(mover.path());
  EXPECT_EQ(facts["driver"]["loaded"], true);
  EXPECT_THAT(facts["ucx"]["problem"].get<std::string>(), HasSubstr("signal 9"));
}

TEST(Probe, HungMoverIsKilledAndOtherFactsAreReported) {
  const FakeMover mover("echo $$ > \"$0.pid\"; exec sleep 1000");
  const Json facts = probe(mover.path(), std::chrono::milliseconds(300));
  for (const char* part : {"driver", "ucx"})
    EXPECT_THAT(facts[part]["problem"].get<std::string>(), HasSubstr("did not finish within 300 ms"));
  EXPECT_TRUE(facts.contains("criu"));
}

// Returns the facts with a CRIU whose `check` succeeds, and with a trial that ends as `trial` specifies.
Json facts_of_trial(const std::string& trial) {
  const FakeMover mover("true");
  const FakeMover criu("case $1 in --version) echo 'Version: 4.2';; esac");
  const FakeMover agent(trial);
  ProbeSettings settings;
  settings.mover_program = mover.path();
  settings.criu = criu.path();
  settings.agent_program = agent.path();
  const auto facts = probe_node(settings);
  EXPECT_TRUE(facts.has_value());
  return facts.has_value() ? (*facts)["criu"] : Json();
}

TEST(Probe, ProbeTriesCriuOnATestProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "CRIU needs root";
  const Json refused = facts_of_trial("echo 'suspending seccomp failed: Operation not permitted'; exit 1");
  EXPECT_EQ(refused["works"], true);
  EXPECT_EQ(refused["moves"], false);
  EXPECT_THAT(refused["problem"].get<std::string>(), HasSubstr("suspending seccomp failed"));
  const Json moved = facts_of_trial(
      R"(echo '{"rehearsal": {"processes": [], "record_ns": 1, "read_bytes_per_second": 1, "write_bytes_per_second": 1}}')");
  EXPECT_EQ(moved["moves"], true) << moved["problem"];
}

TEST(Probe, MissingMoverIsReported) {
  const Json facts = probe("/nonexistent/mover");
  EXPECT_THAT(facts["driver"]["problem"].get<std::string>(), HasSubstr("/nonexistent/mover"));
}

TEST(Probe, OnlyJsonObjectsInTheMoverOutputAreMerged) {
  EXPECT_EQ(merge_mover_output(""), Json::object());
  EXPECT_EQ(merge_mover_output("text\n[1]\n{broken\n{\"a\": 1}\n{\"b\": 2}"), (Json{{"a", 1}, {"b", 2}}));
}

TEST(Probe, ProbeLeavesNoTemporaryFiles) {
  const FakeMover mover("true");
  ASSERT_EQ(::setenv("TMPDIR", mover.folder().c_str(), 1), 0);
  probe(mover.path());
  ::unsetenv("TMPDIR");
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(mover.folder())) {
    left += entry.path().filename() == "mover" ? 0U : 1U;
  }
  EXPECT_EQ(left, 0U);
}

}  // namespace
}  // namespace ckpt::agent
