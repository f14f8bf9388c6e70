// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/base/settings.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace ncclsim {
namespace {

constexpr std::int64_t kDeviceMemory = 2 << 20;
constexpr std::int64_t kMaxDeviceMemory = std::int64_t{1} << 40;
constexpr std::int64_t kTimeoutMs = 600000;

std::string host_identity() {
  const std::string given = text_of("NCCL_HOSTID");
  if (!given.empty()) return given;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  return std::string(name) + boot;
}

// Returns the FNV-1a hash; callers only rely on equal hashes of equal texts.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

}  // namespace

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

std::int64_t number_of(const char* variable, std::int64_t otherwise) {
  const std::string text = text_of(variable);
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  return text.empty() || *end != '\0' || errno != 0 ? otherwise : value;
}

std::uint64_t host_hash() {
  static const std::uint64_t value = hash(host_identity());
  return value;
}

bool connects_at_first_use() {
  return number_of("NCCL_RUNTIME_CONNECT", 1) != 0;
}

std::uint64_t memory_of_communicator() {
  const std::int64_t value = number_of("NCCLSIM_DEVICE_MEMORY", kDeviceMemory);
  return value < 0 || value > kMaxDeviceMemory ? kDeviceMemory : static_cast<std::uint64_t>(value);
}

bool keeps_imports() {
  return number_of("NCCLSIM_IMPORTS", 0) != 0;
}

std::int64_t timeout_ms() {
  const std::int64_t value = number_of("NCCLSIM_TIMEOUT_MS", kTimeoutMs);
  return value > 0 ? value : kTimeoutMs;
}

}  // namespace ncclsim
