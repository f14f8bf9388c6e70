// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/stopped_processes.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>

#include "agent/host_process/criu_image/criu_records.h"
#include "criu_images.pb.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kCoreMagic = 0x55053847;
constexpr std::uint32_t kStoppedTask = 3;
constexpr std::size_t kMaxCoreBytes = 4u << 20;
constexpr std::uint32_t kProcessesMagic = 0x50273030;
const std::string kStoppedFile = "/stopped-by-program";

// Returns N for the file name core-N.img, or nullopt for any other name.
std::optional<pid_t> pid_of_core(std::string_view name) {
  constexpr std::string_view kStart = "core-";
  constexpr std::string_view kEnd = ".img";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd)) return std::nullopt;
  const std::string_view digits = name.substr(kStart.size(), name.size() - kStart.size() - kEnd.size());
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return pid;
}

bool is_stopped_core(const std::string& path) {
  const auto image = read_file(path, kMaxCoreBytes);
  if (!image.has_value() || word_at(*image, 0) != kImageMagic || word_at(*image, 4) != kCoreMagic)
    return false;
  const auto records = records_of(*image, 8);
  if (!records.has_value()) return false;
  const auto core = parse_record<criu::core_entry>(records->front(), "core.img");
  return core.has_value() && core->tc().task_state() == kStoppedTask;
}

// Returns the id of the image's first process, or 0 if the image does not name the process.
pid_t first_process_of(const std::string& images) {
  const auto tree = read_file(images + "/pstree.img", kMaxCoreBytes);
  if (!tree.has_value() || word_at(*tree, 4) != kProcessesMagic) return 0;
  const auto records = records_of(*tree, 8);
  if (!records.has_value()) return 0;
  const auto first = parse_record<criu::pstree_entry>(records->front(), "pstree.img");
  return first.has_value() ? static_cast<pid_t>(first->pid()) : 0;
}

}  // namespace

std::set<pid_t> stopped_in(const std::string& images) {
  std::set<pid_t> stopped;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(images, ignored)) {
    const auto pid = pid_of_core(item.path().filename().string());
    if (pid && is_stopped_core(item.path().string())) stopped.insert(*pid);
  }
  if (stopped.contains(first_process_of(images))) stopped.clear();
  return stopped;
}

void store_stopped(const std::string& folder, const std::set<pid_t>& stopped) {
  if (stopped.empty()) return;
  std::string text;
  for (const pid_t pid : stopped) text += std::to_string(pid) + "\n";
  (void)write_file_durably(folder + kStoppedFile, text);
}

std::set<pid_t> pop_stopped(const std::string& folder) {
  std::set<pid_t> stopped;
  const auto text = read_file(folder + kStoppedFile, kMaxCoreBytes);
  if (!text.has_value()) return stopped;
  std::istringstream lines(*text);
  for (pid_t pid = 0; lines >> pid;) stopped.insert(pid);
  ::unlink((folder + kStoppedFile).c_str());
  return stopped;
}

}  // namespace ckpt::agent::host
