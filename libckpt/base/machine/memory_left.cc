// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/machine/memory_left.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "libckpt/base/fd.h"

namespace ckpt {
namespace {

constexpr std::size_t kMaxText = 64 << 10;

// Returns the number at the beginning of `text`, after skipping blanks.
std::optional<std::uint64_t> number_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxText);
  if (!text.has_value()) return std::nullopt;
  return number_of(*text);
}

std::uint64_t left_on_machine(const std::string& proc) {
  const Result<std::string> text = read_file(proc + "/meminfo", kMaxText);
  if (!text.has_value()) return kMemoryUnknown;
  constexpr std::string_view kName = "\nMemAvailable:";
  const std::size_t at = text->find(kName);
  if (at == std::string::npos) return kMemoryUnknown;
  const auto kib = number_of(std::string_view(*text).substr(at + kName.size()));
  return kib ? *kib << 10 : kMemoryUnknown;
}

// Returns the bytes that one control group still allows. "max" is not a number, so it means no limit.
std::uint64_t left_in_group(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.max");
  const auto used = number_in(folder + "/memory.current");
  if (!limit || !used) return kMemoryUnknown;
  return *limit > *used ? *limit - *used : 0;
}

std::uint64_t left_in_groups(const std::string& proc, const std::string& groups) {
  const Result<std::string> text = read_file(proc + "/self/cgroup", kMaxText);
  if (!text.has_value()) return kMemoryUnknown;
  const std::string lines = "\n" + *text;
  const std::size_t at = lines.find("\n0::/");
  if (at == std::string::npos) return kMemoryUnknown;
  std::string group = lines.substr(at + 4, lines.find('\n', at + 1) - at - 4);
  std::uint64_t left = kMemoryUnknown;
  for (; group.size() > 1; group.resize(group.rfind('/')))
    left = std::min(left, left_in_group(groups + group));
  return left;
}

}  // namespace

std::uint64_t memory_left(const std::string& proc, const std::string& groups) {
  return std::min(left_on_machine(proc), left_in_groups(proc, groups));
}

}  // namespace ckpt
