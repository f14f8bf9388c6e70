// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/task_settings.h"

#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

using Processors = std::vector<std::uint64_t>;

constexpr std::size_t kMaxSettingsBytes = 256u << 20;
constexpr std::uint64_t kUsualSlackNs = 50'000;
constexpr std::size_t kProcessorBits = 64;
const std::string kSettingsFile = "/task-settings.img";

std::string whole_text(const std::string& path) {
  const Result<std::string> text = read_file(path, 65536);
  return text.has_value() ? *text : std::string();
}

void trim(Processors& processors) {
  while (!processors.empty() && processors.back() == 0) processors.pop_back();
}

// Returns the processors on which a thread may run. 0 means the calling thread. The result is empty if the
// thread no longer exists.
Processors processors_of(pid_t thread) {
  Processors mask(kMaxProcessorWords);
  const long bytes = ::syscall(SYS_sched_getaffinity, thread, mask.size() * sizeof mask[0], mask.data());
  mask.resize(bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof mask[0] : 0);
  trim(mask);
  return mask;
}

// Parses the kernel's list of numbers, such as "0-3,8".
Processors parse_list(const std::string& text) {
  Processors all(kMaxProcessorWords);
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long i = first; i <= last && i < kMaxProcessorWords * kProcessorBits; ++i)
      all[i / kProcessorBits] |= std::uint64_t{1} << (i % kProcessorBits);
    if (*end != ',') break;
    at = end + 1;
  }
  trim(all);
  return all;
}

Processors node_processors() {
  return parse_list(whole_text("/sys/devices/system/cpu/online"));
}

// Returns the last number of "NSpid:", which is the id in the innermost namespace. The result is 0 if the
// process no longer exists.
pid_t inner_number(const std::string& status_path) {
  const std::string text = whole_text(status_path);
  const std::size_t line = text.find("\nNSpid:");
  if (line == std::string::npos) return 0;
  const std::string numbers = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
  return std::atoi(numbers.c_str() + numbers.find_last_of(" \t:") + 1);
}

std::uint64_t slack_of(pid_t thread) {
  return std::strtoull(whole_text(proc_path(thread, "/timerslack_ns")).c_str(), nullptr, 10);
}

std::uint32_t core_filter_of(pid_t process) {
  return static_cast<std::uint32_t>(
      std::strtoul(whole_text(proc_path(process, "/coredump_filter")).c_str(), nullptr, 16));
}

std::uint32_t io_priority_of(pid_t thread) {
  const long value = ::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread);
  return value > 0 && IOPRIO_PRIO_CLASS(value) != IOPRIO_CLASS_NONE ? static_cast<std::uint32_t>(value) : 0;
}

std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code gone;
  for (const auto& item : std::filesystem::directory_iterator(proc_path(process, "/task"), gone))
    threads.push_back(std::atoi(item.path().filename().c_str()));
  return threads;
}

std::string status_of_thread(pid_t process, pid_t thread) {
  return proc_path(process, "/task/") + std::to_string(thread) + "/status";
}

// The settings of this agent and its node. Settings that equal these settings are not recorded.
struct Usual {
  Processors own = processors_of(0);
  Processors all = node_processors();
  std::uint32_t core_filter = core_filter_of(::getpid());
};

ThreadSettings settings_of_thread(pid_t thread, const Usual& usual) {
  ThreadSettings found;
  Processors processors = processors_of(thread);
  if (processors != usual.own) {
    found.all_processors = processors == usual.all;
    found.processors = std::move(processors);
  }
  found.io_priority = io_priority_of(thread);
  const std::uint64_t slack = slack_of(thread);
  found.timer_slack_ns = slack == kUsualSlackNs ? 0 : slack;
  return found;
}

void report_refused(const char* what, pid_t thread) {
  spdlog::warn("setting of a moved program not restored: {} of thread {} reason {}", what, thread,
               std::strerror(errno));
}

bool write_text(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void set_processors(pid_t thread, const ThreadSettings& wanted, const Processors& here) {
  Processors mask = wanted.all_processors ? here : wanted.processors;
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= i < here.size() ? here[i] : 0;
  trim(mask);
  if (mask.empty()) {
    spdlog::warn(
        "thread {} of a moved program may run on any processor: this node has none of the processors that "
        "the thread was bound to",
        thread);
    return;
  }
  if (::syscall(SYS_sched_setaffinity, thread, mask.size() * sizeof mask[0], mask.data()) != 0)
    report_refused("processors", thread);
}

void apply_to_thread(pid_t thread, const ThreadSettings& wanted, const Processors& here) {
  if (!wanted.processors.empty()) set_processors(thread, wanted, here);
  if (wanted.io_priority != 0 &&
      ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, static_cast<int>(wanted.io_priority)) != 0)
    report_refused("I/O priority", thread);
  if (wanted.timer_slack_ns != 0 &&
      !write_text(proc_path(thread, "/timerslack_ns"), std::to_string(wanted.timer_slack_ns)))
    report_refused("timer slack", thread);
}

bool is_proper(const TaskSettings& settings) {
  return settings.threads.size() <= kMaxTaskSettings && settings.processes.size() <= kMaxProcesses &&
         std::all_of(settings.threads.begin(), settings.threads.end(), [](const ThreadSettings& thread) {
           return thread.processors.size() <= kMaxProcessorWords;
         });
}

}  // namespace

Result<TaskSettings> settings_of(pid_t root) {
  CKPT_TRY(processes, processes_of(root));
  const Usual usual;
  TaskSettings found;
  for (const pid_t process : processes) {
    for (const pid_t thread : threads_of(process)) {
      ThreadSettings settings = settings_of_thread(thread, usual);
      if (settings == ThreadSettings()) continue;
      settings.thread = static_cast<std::uint32_t>(inner_number(status_of_thread(process, thread)));
      found.threads.push_back(std::move(settings));
    }
    const std::uint32_t filter = core_filter_of(process);
    if (filter == usual.core_filter) continue;
    ProcessSettings& settings = found.processes.emplace_back();
    settings.process = static_cast<std::uint32_t>(inner_number(proc_path(process, "/status")));
    settings.core_dump_filter = filter;
  }
  return found;
}

Result<void> apply_settings(pid_t root, const TaskSettings& settings) {
  if (settings.threads.empty() && settings.processes.empty()) return ok();
  CKPT_TRY(processes, processes_of(root));
  std::map<std::uint32_t, const ThreadSettings*> threads;
  for (const ThreadSettings& wanted : settings.threads) threads[wanted.thread] = &wanted;
  std::map<std::uint32_t, std::uint32_t> filters;
  for (const ProcessSettings& wanted : settings.processes) filters[wanted.process] = wanted.core_dump_filter;
  const Processors here = node_processors();
  for (const pid_t process : processes) {
    for (const pid_t thread : threads_of(process)) {
      if (threads.empty()) break;
      const pid_t number = inner_number(status_of_thread(process, thread));
      const auto wanted = threads.find(static_cast<std::uint32_t>(number));
      if (wanted != threads.end()) apply_to_thread(thread, *wanted->second, here);
    }
    if (filters.empty()) continue;
    const auto filter = filters.find(static_cast<std::uint32_t>(inner_number(proc_path(process, "/status"))));
    if (filter != filters.end() &&
        !write_text(proc_path(process, "/coredump_filter"), std::to_string(filter->second)))
      report_refused("core dump filter", process);
  }
  return ok();
}

Result<void> save_settings(pid_t root, const std::string& images) {
  CKPT_TRY(found, settings_of(root));
  if (found.threads.empty() && found.processes.empty()) return ok();
  const std::vector<std::byte> bytes = wire::encode(found);
  return write_file_durably(images + kSettingsFile,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<TaskSettings> saved_settings(const std::string& images) {
  if (::access((images + kSettingsFile).c_str(), F_OK) != 0) return TaskSettings();
  CKPT_TRY(text, read_file(images + kSettingsFile, kMaxSettingsBytes));
  CKPT_TRY(settings, wire::decode<TaskSettings>(std::as_bytes(std::span(text))));
  if (is_proper(settings)) return settings;
  return Error(ErrorCode::kCorrupt, "The image's settings of threads are malformed");
}

}  // namespace ckpt::agent::host
