// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/job_state.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace ckpt::shim {
namespace {

std::atomic<const char*> g_reason{nullptr};
std::atomic<bool> g_forgotten{false};
std::atomic<std::uint64_t> g_devices_may_write{0};

// The reasons why the job temporarily cannot move.
struct PassingReasons {
  std::mutex mutex;
  std::vector<const char*> names;
};

PassingReasons& passing_reasons() {
  static auto* const reasons = new PassingReasons;
  return *reasons;
}

constexpr int kMaxForgetters = 16;
std::atomic<void (*)()> g_forgetters[kMaxForgetters];
std::atomic<int> g_forgetter_count{0};
std::once_flag g_watching;

// An identity that any thread reads at any time. It is written at a move while the gate is closed. An odd
// version means that a write is in progress.
struct IdentityCell {
  std::atomic<std::uint32_t> version{0};
  std::atomic<bool> present{false};
  std::array<std::atomic<int>, 3> pci{};
  std::array<std::atomic<char>, 16> uuid{};
};
constinit std::array<IdentityCell, kMaxDevices> g_identities{};

void forget_in_child() {
  g_forgotten.store(true, std::memory_order_relaxed);
  const int count = g_forgetter_count.load(std::memory_order_acquire);
  for (int i = 0; i < count && i < kMaxForgetters; ++i) {
    if (auto* forget = g_forgetters[i].load(std::memory_order_acquire)) forget();
  }
}

IdentityCell* cell_of(CUdevice device) noexcept {
  return device >= 0 && device < kMaxDevices ? &g_identities[static_cast<std::size_t>(device)] : nullptr;
}

}  // namespace

void not_movable(const char* api) noexcept {
  const char* none = nullptr;
  g_reason.compare_exchange_strong(none, api, std::memory_order_acq_rel);
}

NotMovable::NotMovable(const char* api) noexcept : api_(api) {
  const std::lock_guard lock(passing_reasons().mutex);
  passing_reasons().names.push_back(api);
}

NotMovable::~NotMovable() {
  PassingReasons& passing = passing_reasons();
  const std::lock_guard lock(passing.mutex);
  passing.names.erase(std::find(passing.names.begin(), passing.names.end(), api_));
}

std::optional<const char*> reason() noexcept {
  if (const char* name = g_reason.load(std::memory_order_acquire)) return name;
  PassingReasons& passing = passing_reasons();
  const std::lock_guard lock(passing.mutex);
  return passing.names.empty() ? std::nullopt : std::optional<const char*>(passing.names.front());
}

void devices_may_write(std::size_t bytes) noexcept {
  g_devices_may_write.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t bytes_devices_may_write() noexcept {
  return g_devices_may_write.load(std::memory_order_relaxed);
}

void set_identity(CUdevice device, const std::optional<Identity>& identity) noexcept {
  IdentityCell* cell = cell_of(device);
  if (cell == nullptr) return;
  cell->version.fetch_add(1, std::memory_order_seq_cst);
  cell->present.store(identity.has_value());
  if (identity) {
    cell->pci[0].store(identity->pci_domain);
    cell->pci[1].store(identity->pci_bus);
    cell->pci[2].store(identity->pci_device);
    for (std::size_t i = 0; i < identity->uuid.size(); ++i) cell->uuid[i].store(identity->uuid[i]);
  }
  cell->version.fetch_add(1, std::memory_order_seq_cst);
}

std::optional<Identity> identity_of(CUdevice device) noexcept {
  IdentityCell* cell = cell_of(device);
  if (cell == nullptr) return std::nullopt;
  for (;;) {
    const std::uint32_t before = cell->version.load();
    if (before == 0) return std::nullopt;
    const bool present = cell->present.load();
    Identity identity{
        .pci_domain = cell->pci[0].load(), .pci_bus = cell->pci[1].load(), .pci_device = cell->pci[2].load()};
    for (std::size_t i = 0; i < identity.uuid.size(); ++i) identity.uuid[i] = cell->uuid[i].load();
    if (before % 2 == 0 && cell->version.load() == before) {
      return present ? std::optional<Identity>(identity) : std::nullopt;
    }
  }
}

bool forgotten() noexcept {
  return g_forgotten.load(std::memory_order_relaxed);
}

void at_fork_child(void (*forget)()) noexcept {
  std::call_once(g_watching, [] { ::pthread_atfork(nullptr, nullptr, &forget_in_child); });
  const int place = g_forgetter_count.fetch_add(1, std::memory_order_acq_rel);
  if (place < kMaxForgetters) g_forgetters[place].store(forget, std::memory_order_release);
}

}  // namespace ckpt::shim
