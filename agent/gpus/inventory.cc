// SPDX-License-Identifier: Apache-2.0
#include "agent/gpus/inventory.h"

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

namespace ckpt::agent {

struct Inventory::Query {
  std::string library;
  std::mutex mutex;
  std::shared_ptr<Nvml> nvml;  // loaded library, guarded by mutex; kept between queries
  InventorySnapshot result;    // written by the thread before it sets `done`
  std::atomic<bool> done{true};
  std::mutex loop_mutex;
  asio::io_context* loop = nullptr;  // guarded by loop_mutex; null after the Inventory was destroyed
};

namespace {

InventorySnapshot ask(std::shared_ptr<Nvml>& nvml, const std::string& library) {
  InventorySnapshot snapshot;
  if (!nvml) {
    auto loaded = Nvml::create(library);
    if (!loaded) {
      snapshot.problem = loaded.error().to_string();
      return snapshot;
    }
    nvml = *std::move(loaded);
  }
  auto gpus = nvml->read_gpus();
  if (gpus) {
    snapshot.gpus = *std::move(gpus);
  } else {
    snapshot.problem = gpus.error().to_string();
  }
  if (auto version = nvml->driver_version()) snapshot.driver_version = *std::move(version);
  return snapshot;
}

// Returns the GPUs of `peers` that belong to this node, numbered as on this node.
std::vector<GpuPeerFacts> peers_of_this_node(const std::vector<GpuPeerFacts>& peers,
                                             const std::map<std::uint32_t, std::uint32_t>& ours) {
  std::vector<GpuPeerFacts> out;
  for (GpuPeerFacts peer : peers) {
    const auto at = ours.find(peer.index);
    if (at == ours.end()) continue;
    peer.index = at->second;
    out.push_back(peer);
  }
  return out;
}

std::vector<GpuFacts> of_this_node(std::vector<GpuFacts> gpus, const std::vector<std::uint32_t>& visible) {
  if (visible.empty()) return gpus;
  std::vector<GpuFacts> ours;
  std::map<std::uint32_t, std::uint32_t> numbers;  // maps the machine's numbers to this node's numbers
  for (std::uint32_t machine_index : visible) {
    for (const GpuFacts& gpu : gpus) {
      if (gpu.index != machine_index) continue;
      ours.push_back(gpu);
      ours.back().index = static_cast<std::uint32_t>(ours.size() - 1);
      numbers.emplace(machine_index, ours.back().index);
    }
  }
  for (GpuFacts& gpu : ours) gpu.topology.peers = peers_of_this_node(gpu.topology.peers, numbers);
  return ours;
}

}  // namespace

Inventory::Inventory(asio::io_context& io, std::string library, std::chrono::milliseconds timeout,
                     std::vector<std::uint32_t> visible)
    : io_(io),
      library_(std::move(library)),
      timeout_(timeout),
      visible_(std::move(visible)),
      running_(std::make_shared<Query>()) {
  running_->library = library_;
  running_->loop = &io_;
}

Inventory::~Inventory() {
  std::lock_guard lock(running_->loop_mutex);
  running_->loop = nullptr;
}

Task<void> Inventory::refresh() {
  if (!running_->done) {
    last_.problem = "The GPU driver has not answered since the last refresh";
    for (GpuFacts& gpu : last_.gpus) gpu.problem = last_.problem;
    co_return;
  }
  auto timer = std::make_shared<asio::steady_timer>(io_, timeout_);
  auto query = running_;
  query->done = false;
  // The thread is detached on purpose, because a thread inside a hung driver can never be joined.
  std::thread([query, waiting = std::weak_ptr(timer)] {
    InventorySnapshot snapshot;
    {
      std::lock_guard lock(query->mutex);
      snapshot = ask(query->nvml, query->library);
    }
    query->result = std::move(snapshot);
    query->done = true;
    std::lock_guard lock(query->loop_mutex);
    if (!query->loop) return;
    asio::post(*query->loop, [waiting] {
      if (auto timer = waiting.lock()) timer->cancel();
    });
  }).detach();

  boost::system::error_code ignored;
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (query->done) {
    const bool keep_list = query->result.gpus.empty() && !query->result.problem.empty();
    if (keep_list) {
      last_.problem = query->result.problem;
    } else {
      last_ = query->result;
      last_.gpus = of_this_node(std::move(last_.gpus), visible_);
    }
  } else {
    last_.problem = "The GPU driver did not answer within " + std::to_string(timeout_.count()) + " ms";
  }
  if (!last_.problem.empty()) {
    for (GpuFacts& gpu : last_.gpus) gpu.problem = last_.problem;
  }
}

std::string Inventory::why_no_gpus() const {
  if (!last_.problem.empty() || !last_.gpus.empty()) return last_.problem;
  return visible_.empty() ? "The GPU driver reports no GPU"
                          : "The GPU driver reports none of the GPUs in visible_gpus";
}

const GpuFacts* Inventory::gpu(std::uint32_t index) const noexcept {
  for (const GpuFacts& gpu : last_.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

}  // namespace ckpt::agent
