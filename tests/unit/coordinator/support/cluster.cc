// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/cluster.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <utility>

#include "coordinator/daemon/coordinator.h"

namespace ckpt::coordinator::test {
Cluster::Cluster() {
  std::string pattern = ::testing::TempDir() + "/clusterXXXXXX";
  config_.home = ::mkdtemp(pattern.data());
  config_.tagged_ids = false;   // the tests expect that the first job is j1
  config_.kept_output_mib = 0;  // most tests have agents of their own that record what was requested of them
}

Cluster::~Cluster() {
  stop();
  std::filesystem::remove_all(config_.home);
}

void Cluster::start() {
  io_ = std::make_unique<control::asio::io_context>(1);
  auto created = Coordinator::create(*io_, config_, fatal_, images_);
  ASSERT_TRUE(created) << created.error().to_string();
  coordinator_ = std::move(created).value();
  token_ = coordinator_->token();
  agent_token_ = coordinator_->agent_token();
  thread_ = std::thread([this] { io_->run(); });
}

void Cluster::stop() {
  if (!thread_.joinable()) return;
  control::asio::post(*io_, [this] {
    coordinator_->stop();
    io_->stop();
  });
  thread_.join();
  coordinator_.reset();
  io_.reset();
}

void Cluster::on_io(const std::function<void(Coordinator&, control::asio::any_io_executor)>& what) {
  std::promise<void> done;
  control::asio::post(*io_, [&] {
    what(*coordinator_, io_->get_executor());
    done.set_value();
  });
  done.get_future().wait();
}

void Cluster::on_images(const std::function<void(Images&, control::asio::any_io_executor)>& what) {
  on_io([&what](Coordinator& coordinator, control::asio::any_io_executor executor) {
    what(coordinator.images(), std::move(executor));
  });
}

void Cluster::wait_for_event(const std::string& kind, unsigned count) {
  std::uint64_t since = 0;
  while (true) {
    const auto answer = get("/v1/events?follow_ms=30000&since=" + std::to_string(since));
    ASSERT_EQ(answer.status, 200U);
    const auto body = answer.json();
    ASSERT_FALSE(body["events"].empty()) << "no event " << kind;
    for (const auto& event : body["events"]) {
      if (event["kind"] == kind && --count == 0) return;
    }
    since = body["next"].get<std::uint64_t>();
  }
}

}  // namespace ckpt::coordinator::test
