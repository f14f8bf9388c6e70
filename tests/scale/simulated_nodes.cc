// SPDX-License-Identifier: Apache-2.0
#include "tests/scale/simulated_nodes.h"

namespace ckpt::scale {
namespace {

using coordinator::test::FakeAgent;
using nlohmann::json;

constexpr std::uint64_t kGpuBytes = std::uint64_t{80} << 30;
constexpr std::uint64_t kJobBytes = std::uint64_t{8} << 30;
constexpr std::chrono::seconds kReady{120};
constexpr std::chrono::milliseconds kBetweenLooks{20};

void give_gpus(FakeAgent& agent, unsigned count) {
  const wire::GpuInfo first = agent.inventory.gpus.front();
  agent.inventory.gpus.assign(count, first);
  for (unsigned i = 0; i < count; ++i) {
    wire::GpuInfo& gpu = agent.inventory.gpus[i];
    gpu.index = i;
    gpu.uuid = first.uuid + "-" + std::to_string(i);
    gpu.total_bytes = gpu.free_bytes = kGpuBytes;
    for (unsigned other = 0; other < count; ++other) {
      if (other == i) continue;
      wire::GpuPeer& peer = gpu.peers.emplace_back();
      peer.index = other;
      peer.nvlinks = 4;
    }
  }
}

}  // namespace

std::string SimulatedNodes::job_of(unsigned node, unsigned gpu, unsigned job) {
  return "job-" + std::to_string(node) + "-" + std::to_string(gpu) + "-" + std::to_string(job);
}

SimulatedNodes::SimulatedNodes(const CoordinatorProcess& coordinator, const NodesShape& shape)
    : coordinator_(coordinator), shape_(shape) {
  for (unsigned i = 0; i < shape_.nodes; ++i) {
    agents_.push_back(
        std::make_unique<FakeAgent>(name_of(i), coordinator.agent_address(), coordinator.agent_token()));
    give_gpus(*agents_.back(), shape_.gpus);
  }
  // Between these two nodes a migration stays open.
  agents_[0]->silent_prepare = agents_[1]->silent_prepare = true;
}

SimulatedNodes::~SimulatedNodes() {
  fall_silent();
}

void SimulatedNodes::fall_silent() {
  {
    const std::lock_guard lock(mutex_);
    silent_ = true;
  }
  silence_.notify_all();
  if (speaker_.joinable()) speaker_.join();
}

Result<void> SimulatedNodes::start() {
  for (const auto& agent : agents_) agent->start();
  CKPT_TRYV(wait_until_ready());
  CKPT_TRYV(start_jobs());
  speaker_ = std::thread([this] { speak(); });
  return ok();
}

Result<void> SimulatedNodes::wait_until_ready() const {
  const auto deadline = std::chrono::steady_clock::now() + kReady;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto answer = coordinator_.get("/v1/status");
    if (answer.status == 200 && answer.json().value("nodes_ready", 0U) == shape_.nodes) return ok();
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return Error(ErrorCode::kTimedOut, "The simulated nodes are not all ready");
}

Result<void> SimulatedNodes::start_jobs() const {
  for (unsigned node = 0; node < shape_.nodes; ++node) {
    for (unsigned i = 0; i < shape_.gpus * shape_.jobs_per_gpu; ++i) {
      const unsigned gpu = i % shape_.gpus;
      const json body = {{"argv", {"./train"}},
                         {"cwd", "/tmp"},
                         {"node", name_of(node)},
                         {"gpu", gpu},
                         {"name", job_of(node, gpu, i / shape_.gpus)}};
      const auto answer = coordinator_.post("/v1/jobs", body.dump());
      if (answer.status != 201) return Error(ErrorCode::kInternal, "A job did not start: " + answer.body);
    }
  }
  return ok();
}

void SimulatedNodes::speak() {
  std::unique_lock lock(mutex_);
  for (unsigned turn = 0; !silent_; ++turn) {
    for (const auto& agent : agents_) agent->post([this, turn, a = agent.get()] { send_reports(*a, turn); });
    silence_.wait_for(lock, shape_.period, [this] { return silent_; });
  }
}

// Sends an agent's inventory. The memory and log sizes change slightly, as during training.
void SimulatedNodes::send_reports(FakeAgent& agent, unsigned turn) const {
  const std::uint64_t little = std::uint64_t{turn % 7} << 20;
  for (wire::GpuInfo& gpu : agent.inventory.gpus)
    gpu.free_bytes = kGpuBytes - shape_.jobs_per_gpu * (kJobBytes + little);
  for (wire::JobInstance& instance : agent.inventory.jobs) {
    instance.log_bytes += 100;
    for (wire::RankState& rank : instance.ranks) rank.device_bytes = kJobBytes + little;
  }
  wire::Inventory message;
  message.inventory = agent.inventory;
  agent.send(message);
}

}  // namespace ckpt::scale
