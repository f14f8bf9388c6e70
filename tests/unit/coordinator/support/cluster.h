// SPDX-License-Identifier: Apache-2.0
// A coordinator on a thread of its own. Its folder is removed at the end.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/settings/config.h"
#include "libckpt/net/control/asio.h"
#include "tests/unit/coordinator/support/http_client.h"

namespace ckpt::coordinator {
class Coordinator;  // the class is only declared here, because most tests use the API and compile without all
                    // parts of the coordinator
class Images;
}  // namespace ckpt::coordinator

namespace ckpt::coordinator::test {

class Cluster {
 public:
  Cluster();
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Starts the coordinator; the test fails if it does not start. Its sockets are the same after a restart.
  void start();
  void stop();

  HttpAnswer get(const std::string& target) { return request(api_address(), token_, "GET", target); }
  HttpAnswer post(const std::string& target, const std::string& body = "{}") {
    return request(api_address(), token_, "POST", target, body);
  }
  // Runs `what` on the coordinator's thread and waits for its end.
  void on_io(const std::function<void(Coordinator&, control::asio::any_io_executor)>& what);
  void on_images(const std::function<void(Images&, control::asio::any_io_executor)>& what);
  // Waits until `count` events of `kind` have been seen since the cluster began. Events are never missed.
  void wait_for_event(const std::string& kind, unsigned count = 1);

  // Returns the configuration. Change it before start().
  [[nodiscard]] Config& config() { return config_; }
  void use_images(Images* images) { images_ = images; }
  // Sets the function that is called when the journal fails. Without it the test fails. The function runs on
  // the coordinator's thread.
  void expect_fatal(std::function<void(const Error&)> fatal) { fatal_ = std::move(fatal); }

  [[nodiscard]] std::string api_address() const { return "unix:" + config_.folder() + "/api.sock"; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] const std::string& agent_token() const { return agent_token_; }
  [[nodiscard]] std::string agent_address() const { return "unix:" + config_.folder() + "/agents.sock"; }
  // Returns the configuration for the next start().
  [[nodiscard]] Config& settings() { return config_; }
  [[nodiscard]] const std::string& folder() const { return config_.home; }

 private:
  Config config_;
  Images* images_ = nullptr;
  std::function<void(const Error&)> fatal_ = [](const Error& error) { ADD_FAILURE() << error.to_string(); };
  std::unique_ptr<control::asio::io_context> io_;
  std::unique_ptr<Coordinator> coordinator_;
  std::thread thread_;
  std::string token_;
  std::string agent_token_;
};

}  // namespace ckpt::coordinator::test
