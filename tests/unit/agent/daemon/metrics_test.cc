// SPDX-License-Identifier: Apache-2.0
// Tests of the counters of the reports to the coordinator, and of the port that serves them.
#include "agent/daemon/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "agent/daemon/metrics_server.h"
#include "agent/io/file_watch.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Coordinator : CoordinatorPort {
  bool send(const wire::CommitMessage&) override { return ++messages != 0; }
  bool send(const wire::MigrationProgress&) override { return ++messages != 0; }
  bool send(const wire::SourceReport&) override { return ++messages != 0; }
  bool send(const wire::TargetReport&) override { return ++messages != 0; }
  unsigned messages = 0;
};

class AgentMetricsTest : public ::testing::Test {
 protected:
  AgentMetricsTest()
      : files_(FileWatch::create(io_.get_executor()).value()),
        environment_{config_, io_.get_executor(), *files_, "keeper", owner_, records_},
        jobs_(environment_),
        inventory_(io_, "libnone.so", std::chrono::milliseconds(1000)),
        metrics_("node-a", {[this] { return connected_; }, inventory_, jobs_, movers_, transfers_,
                            [this](wire::MigrationId id) { return open_.contains(id); }}) {
    config_.home = folder_.path();
  }
  void progress(wire::MigrationId id, std::uint64_t sent, std::uint64_t remaining) {
    wire::MigrationProgress p;
    p.migration = id;
    p.sent_bytes = sent;
    p.remaining_bytes = remaining;
    p.throughput_bytes_per_second = 100;
    EXPECT_TRUE(transfers_.send(p));
  }
  std::string page() { return metrics_.registry().page(); }

  asio::io_context io_;
  TemporaryFolder folder_;
  Config config_;
  std::shared_ptr<FileWatch> files_;
  asio::thread_pool records_{1};
  FakeOwner owner_;
  JobEnvironment environment_;
  JobTable jobs_;
  Inventory inventory_;
  std::map<std::uint32_t, std::shared_ptr<MoverProcess>> movers_;
  Coordinator coordinator_;
  Transfers transfers_{coordinator_};
  bool connected_ = true;
  std::set<wire::MigrationId> open_;
  Metrics metrics_;
};

TEST_F(AgentMetricsTest, TransfersAreCountedWhileInProgress) {
  open_ = {1, 2};
  progress(1, 1000, 500);
  progress(1, 1500, 200);
  progress(2, 70, 30);
  EXPECT_EQ(coordinator_.messages, 3U);  // all messages were forwarded
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_sent_bytes_total{node=\"node-a\"} 1570\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_remaining_bytes{node=\"node-a\"} 230\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_throughput_bytes_per_second{node=\"node-a\"} 200\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_transfers{node=\"node-a\"} 2\n"));
  progress(1, 10, 5);  // a restarted mover: a counter never decreases
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_sent_bytes_total{node=\"node-a\"} 1570\n"));
}

TEST_F(AgentMetricsTest, ClosedTransferIsNotShown) {
  open_ = {1};
  progress(1, 1000, 500);
  open_ = {};
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_remaining_bytes{node=\"node-a\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_transfers{node=\"node-a\"} 0\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_sent_bytes_total{node=\"node-a\"} 1000\n"));
}

TEST_F(AgentMetricsTest, ClosedTransferIsDroppedEvenIfThePageIsNotRead) {
  open_ = {1, 2};
  progress(1, 1000, 500);
  progress(2, 70, 30);
  open_ = {2};
  metrics_.release_closed();
  ASSERT_EQ(transfers_.last().size(), 1U);
  EXPECT_TRUE(transfers_.last().contains(2));
  EXPECT_EQ(transfers_.sent_bytes(), 1070U);
}

TEST_F(AgentMetricsTest, CoordinatorConnectionAndNvmlStateAreShown) {
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_coordinator_connected{node=\"node-a\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_nvml_answers{node=\"node-a\"} 1\n"));
  connected_ = false;
  const auto refresh = [this]() -> Task<bool> {
    co_await inventory_.refresh();
    co_return true;
  };
  run_until_done(io_, refresh());
  EXPECT_THAT(page(), HasSubstr("gpumigrate_agent_coordinator_connected{node=\"node-a\"} 0\n"));
  EXPECT_THAT(page(),
              HasSubstr("gpumigrate_agent_nvml_answers{node=\"node-a\"} 0\n"));  // libnone.so does not exist
}

class MetricsServerTest : public AgentMetricsTest {
 protected:
  Result<std::unique_ptr<MetricsServer>> serve(const std::string& address) {
    config_.metrics_address = address;
    return MetricsServer::create(io_.get_executor(), config_, identity_, nullptr, metrics_.registry());
  }
  static std::string address_of(const MetricsServer& server) {
    return server.where().substr(std::string("https://").size());
  }
  tls::Certificates certificates_;
  std::shared_ptr<tls::Identity> identity_ = certificates_.identity("node-a", tls::Peer::node("node-a"));
};

TEST_F(MetricsServerTest, ServerKeepsThePortChosenByTheSystem) {
  auto first = serve("127.0.0.1:0");
  ASSERT_TRUE(first) << first.error().to_string();
  const std::string address = address_of(*first.value());
  EXPECT_EQ(read_file(folder_ / "metrics.address", 64).value() + "/metrics", address);
  auto beside = serve("127.0.0.1:0");  // the port of `first` is in use
  ASSERT_TRUE(beside) << beside.error().to_string();
  EXPECT_NE(address_of(*beside.value()), address);
  const std::string second = address_of(*beside.value());
  beside.value().reset();
  auto again = serve("127.0.0.1:0");
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(address_of(*again.value()), second);
}

TEST_F(MetricsServerTest, ConfigurationErrorsAreReportedByName) {
  EXPECT_TRUE(serve("unix:" + (folder_ / "metrics.sock")));
  config_.metrics_token_file = folder_ / "absent";
  EXPECT_FALSE(serve("127.0.0.1:0"));
  ASSERT_TRUE(write_file_durably(folder_ / "empty", "\n"));
  config_.metrics_token_file = folder_ / "empty";
  EXPECT_THAT(serve("127.0.0.1:0").error().to_string(), HasSubstr("empty"));
}

TEST_F(MetricsServerTest, TcpRequiresACertificate) {
  identity_ = nullptr;
  EXPECT_THAT(serve("127.0.0.1:0").error().to_string(), HasSubstr("certificate"));
}

}  // namespace
}  // namespace ckpt::agent
