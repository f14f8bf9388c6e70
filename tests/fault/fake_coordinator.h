// SPDX-License-Identifier: Apache-2.0
// A minimal coordinator that accepts agents, stores their messages, and sends the messages that a test
// orders. The file also has agents as processes, each of which is a separate node.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/listener.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::test {

class FakeCoordinator {
 public:
  explicit FakeCoordinator(const std::string& folder) : token_file(folder + "/token") {
    std::ofstream(token_file) << kToken;
    std::filesystem::permissions(token_file, std::filesystem::perms::owner_read);
    control::Listener::Settings settings;
    settings.address = "unix:" + folder + "/agents.sock";
    settings.token = kToken;
    auto listener = control::Listener::create(
        io_.get_executor(), settings,
        [this](auto connection, const wire::Hello& hello) { accept(std::move(connection), hello.name); });
    if (!listener) throw std::runtime_error(listener.error().to_string());
    listener_ = *std::move(listener);
  }

  [[nodiscard]] const std::string& address() const { return listener_->address(); }
  [[nodiscard]] bool connected(const std::string& node) const { return agents_.contains(node); }

  template <class M>
  std::uint64_t send(const std::string& node, M message) {
    message.request_id = ++requests_;
    if (auto sent = agents_.at(node)->send(message); !sent)
      throw std::runtime_error(sent.error().to_string());
    return requests_;
  }
  // Runs the loop until `done`, for at most a minute; no test needs nearly that long.
  void wait(const std::string& what, const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    io_.restart();
    while (!done()) {
      if (io_.run_one_until(until) == 0) throw std::runtime_error("never: " + what);
    }
  }
  const wire::Reply& answer(std::uint64_t request) {
    wait("the answer", [&] { return replies.contains(request); });
    return replies.at(request);
  }
  template <class M>
  wire::Reply ask(const std::string& node, M message) {
    return answer(send(node, std::move(message)));
  }
  [[nodiscard]] const wire::JobInstance* instance(const std::string& node, wire::JobId job,
                                                  wire::Incarnation incarnation) const {
    const auto found = instances.find({node, {job, incarnation}});
    return found == instances.end() ? nullptr : &found->second;
  }

  const std::string token_file;
  std::map<std::uint64_t, wire::Reply> replies;
  std::map<std::pair<std::string, std::pair<wire::JobId, wire::Incarnation>>, wire::JobInstance> instances;
  std::vector<wire::SnapshotReport> reports;
  std::map<std::string, wire::CheckpointStoreContents>
      checkpoint_stores;                                // the contents of checkpoint stores by node
  std::map<std::string, wire::RestoreReport> restored;  // the last restore report by node

 private:
  static constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

  void accept(std::shared_ptr<control::Connection> connection, const std::string& node) {
    agents_[node] = connection;
    control::Connection::Handlers handlers;
    handlers.on_frame = [this, node](const wire::FrameHeader& header, std::span<const std::byte> body) {
      return take(node, header.type, body);
    };
    handlers.on_closed = [this, node](const Error&) { agents_.erase(node); };
    connection->start(std::move(handlers));
  }
  void keep(const std::string& node, const wire::JobInstance& instance) {
    instances[{node, {instance.job, instance.incarnation}}] = instance;
  }
  Result<void> take(const std::string& node, wire::FrameType type, std::span<const std::byte> body) {
    if (type == wire::FrameType::kAgentHello) {
      CKPT_TRY(hello, wire::decode<wire::AgentHello>(body));
      for (const auto& instance : hello.inventory.jobs) keep(node, instance);
      return agents_.at(node)->send(wire::Welcome{});
    }
    if (type == wire::FrameType::kInventory) {
      CKPT_TRY(inventory, wire::decode<wire::Inventory>(body));
      for (const auto& instance : inventory.inventory.jobs) keep(node, instance);
    } else if (type == wire::FrameType::kJobChange) {
      CKPT_TRY(change, wire::decode<wire::JobChange>(body));
      keep(node, change.instance);
    } else if (type == wire::FrameType::kReply) {
      CKPT_TRY(reply, wire::decode<wire::Reply>(body));
      replies[reply.request_id] = reply;
    } else if (type == wire::FrameType::kSnapshotReport) {
      CKPT_TRY(report, wire::decode<wire::SnapshotReport>(body));
      reports.push_back(report);
    } else if (type == wire::FrameType::kRestoreReport) {
      CKPT_TRY(report, wire::decode<wire::RestoreReport>(body));
      restored[node] = report;
    } else if (type == wire::FrameType::kCheckpointStoreContents) {
      CKPT_TRY(contents, wire::decode<wire::CheckpointStoreContents>(body));
      checkpoint_stores[node] = contents;
    }
    return ok();
  }

  control::asio::io_context io_;
  std::shared_ptr<control::Listener> listener_;
  std::map<std::string, std::shared_ptr<control::Connection>> agents_;
  std::uint64_t requests_ = 0;
};

// One node: its agent, with software GPUs of its own. The keepers of its jobs end with this object.
class AgentNode {
 public:
  AgentNode(std::string name, const std::string& folder, const FakeCoordinator& coordinator,
            const std::string& settings = "")
      : name_(std::move(name)), home_(folder + "/" + name_), folder_(folder) {
    std::filesystem::create_directories(home_ + "/gpu");
    std::filesystem::create_directories(folder_ + "/faults");
    environment_ = {"CUDASIM_DIR=" + home_ + "/gpu", "CUDASIM_DEVICES=1", "CUDASIM_MEMORY=1GiB",
                    "CKPT_FAULT_DIR=" + folder_ + "/faults"};
    std::string list;
    for (std::string entry : environment_) list += "\"" + entry + "\", ";
    for (const char* inherited : {"LD_LIBRARY_PATH", "CKPT_KERNEL_DIR"})
      list += "\"" + std::string(inherited) + "=" + std::getenv(inherited) + "\", ";
    std::ofstream(home_ + "/agent.toml")
        << settings << "\nrehearsal = false\nnode = \"" << name_ << "\"\nhome = \"" << home_
        << "\"\ncoordinator = \"" << coordinator.address() << "\"\ntoken_file = \"" << coordinator.token_file
        << "\"\ndriver_files = [\"/secretmem\", \"locks:" << home_ << "/gpu/\"]\nlog_file = \"" << home_
        << "/agent.log\"\njob_environment = [" << list << "]\n";
    start();
  }
  ~AgentNode() {
    kill();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(home_)) {
      if (entry.path().filename() != "keeper.pid") continue;
      pid_t pid = 0;
      std::ifstream(entry.path()) >> pid;
      if (pid > 1) ::kill(pid, SIGKILL);
    }
    if (testing::Test::HasFailure()) std::cerr << log("agent.log") << log("mover-0.log");
  }
  AgentNode(const AgentNode&) = delete;
  AgentNode& operator=(const AgentNode&) = delete;

  void start() {
    std::string program = CKPT_AGENT_PROGRAM;
    std::string config = home_ + "/agent.toml";
    std::string option = "--config";
    char* argv[] = {program.data(), option.data(), config.data(), nullptr};
    std::vector<char*> environment;
    for (char** e = environ; *e != nullptr; ++e)
      if (!std::string_view(*e).starts_with("CUDASIM_")) environment.push_back(*e);
    for (std::string& entry : environment_) environment.push_back(entry.data());
    environment.push_back(nullptr);
    if (::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, environment.data()) != 0)
      throw std::runtime_error("posix_spawn");
  }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
  }
  // Waits until the agent has exited.
  void wait() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void arm(const std::string& role, int point) const {
    std::ofstream(folder_ + "/faults/" + role + "." + std::to_string(point)) << "kill";
  }
  [[nodiscard]] bool fired(const std::string& role, int point) const {
    return !std::filesystem::exists(folder_ + "/faults/" + role + "." + std::to_string(point));
  }
  [[nodiscard]] const std::string& home() const { return home_; }
  // Returns the number of keepers below home() that have not ended.
  [[nodiscard]] int living_keepers() const {
    int living = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(home_)) {
      if (entry.path().filename() != "keeper.pid") continue;
      pid_t pid = 0;
      std::ifstream(entry.path()) >> pid;
      std::error_code gone;  // the error is also set for a keeper that has ended and was not reaped
      const auto program = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone);
      living += program.filename() == "gpumigrate-keeper" ? 1 : 0;
    }
    return living;
  }
  [[nodiscard]] std::string log(const std::string& file) const {
    std::ifstream in(home_ + "/" + file);
    return "--- " + name_ + "/" + file + "\n" + std::string(std::istreambuf_iterator<char>(in), {});
  }
  // Returns the output of the job's last instance of that incarnation.
  [[nodiscard]] std::string output(wire::JobId job, wire::Incarnation incarnation) const {
    const std::string begin = "j" + std::to_string(job) + "." + std::to_string(incarnation);
    std::filesystem::path last;
    for (const auto& entry : std::filesystem::directory_iterator(home_ + "/jobs")) {
      const std::string name = entry.path().filename();
      if ((name == begin || name.starts_with(begin + ".")) && entry.path() > last) last = entry.path();
    }
    std::ifstream in(last / "out.log");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  const std::string name_;
  const std::string home_;
  const std::string folder_;
  std::vector<std::string> environment_;
  pid_t pid_ = -1;
};

}  // namespace ckpt::test
