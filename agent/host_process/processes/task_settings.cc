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
#include <optional>
#include <span>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxSettingsBytes = 256u << 20;
constexpr std::size_t kMaxListText = 200;
constexpr std::uint64_t kUsualSlackNs = 50'000;
constexpr std::int32_t kLowestNice = -20;
constexpr std::int32_t kHighestNice = 19;
const std::string kSettingsFile = "/task-settings.img";

std::string whole_text(const std::string& path) {
  const Result<std::string> text = read_file(path, 65536);
  return text.has_value() ? *text : std::string();
}

Processors node_processors() {
  return parse_processors(whole_text("/sys/devices/system/cpu/online"));
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

// The part of the kernel's struct sched_attr that sched_getattr(2) always has. It is defined here, because
// the headers of libc and of the kernel do not agree on which of them declares it.
struct Scheduling {
  std::uint32_t size = 48;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // time slice, for policies with a nice value
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(Scheduling) == 48);

std::optional<Scheduling> scheduling_of(pid_t thread) {
  Scheduling found;
  if (::syscall(SYS_sched_getattr, thread, &found, sizeof found, 0) != 0) return std::nullopt;
  const bool has_slice = found.policy == SCHED_OTHER || found.policy == SCHED_BATCH;
  if (!has_slice) return std::nullopt;
  return found;
}

// Returns the time slice of a thread in nanoseconds. The result is 0 if the thread's policy has no time
// slice, or if the kernel does not report it.
std::uint64_t slice_of(pid_t thread) {
  const auto found = scheduling_of(thread);
  return found ? found->runtime : 0;
}

bool set_slice(pid_t thread, std::uint64_t slice_ns) {
  auto wanted = scheduling_of(thread);
  if (!wanted) return true;  // the restored policy has no time slice
  wanted->size = sizeof(Scheduling);
  wanted->runtime = slice_ns;
  return ::syscall(SYS_sched_setattr, thread, &*wanted, 0) == 0;
}

// Returns the nice value of the session that the process leads, from a text such as "/autogroup-25 nice 7".
// The result is 0 if the process does not lead its session.
std::int32_t session_nice_of(pid_t process) {
  if (::getsid(process) != process) return 0;
  const std::string text = whole_text(proc_path(process, "/autogroup"));
  const std::size_t at = text.rfind(' ');
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 1);
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
  std::uint64_t slice = slice_of(0);
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
  const std::uint64_t slice = slice_of(thread);
  found.slice_ns = slice == usual.slice ? 0 : slice;
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

// Counts the threads that run on stand-ins, and those among them that have fewer processors than before.
struct Rebound {
  std::size_t threads = 0;
  std::size_t with_fewer = 0;
};

void set_processors(pid_t thread, const ThreadSettings& wanted, const ProcessorMap& map, Rebound& rebound) {
  const Processors set = wanted.all_processors ? map.here() : map.translate(wanted.processors);
  if (!bind_to_processors(thread, set)) return report_refused("processors", thread);
  if (wanted.all_processors || !map.is_lacking(wanted.processors)) return;
  ++rebound.threads;
  if (count_processors(set) < count_processors(wanted.processors)) ++rebound.with_fewer;
}

void apply_to_thread(pid_t thread, const ThreadSettings& wanted, const ProcessorMap& map, Rebound& rebound) {
  if (!wanted.processors.empty()) set_processors(thread, wanted, map, rebound);
  if (wanted.io_priority != 0 &&
      ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, static_cast<int>(wanted.io_priority)) != 0)
    report_refused("I/O priority", thread);
  if (wanted.timer_slack_ns != 0 &&
      !write_text(proc_path(thread, "/timerslack_ns"), std::to_string(wanted.timer_slack_ns)))
    report_refused("timer slack", thread);
  if (wanted.slice_ns != 0 && !set_slice(thread, wanted.slice_ns)) report_refused("time slice", thread);
}

void apply_to_process(pid_t process, const ProcessSettings& wanted) {
  if (!write_text(proc_path(process, "/coredump_filter"), std::to_string(wanted.core_dump_filter)))
    report_refused("core dump filter", process);
  if (wanted.session_nice != 0 &&
      !write_text(proc_path(process, "/autogroup"), std::to_string(wanted.session_nice)))
    report_refused("nice value of the session", process);
}

// Returns the list of processors as text. A long list is cut, because the frame of a report is small.
std::string short_text_of(const Processors& set) {
  std::string text = text_of_processors(set);
  if (text.size() <= kMaxListText) return text;
  return text.substr(0, text.rfind(',', kMaxListText)) + ", ...";
}

std::vector<std::string> remarks_on(const Rebound& rebound, const ProcessorMap& map) {
  if (rebound.threads == 0) return {};
  std::string text =
      (rebound.threads == 1 ? "1 thread was" : std::to_string(rebound.threads) + " threads were") +
      " bound to processors that this node lacks (" + short_text_of(map.missing()) + "); processors " +
      short_text_of(map.stand_ins()) + " are used instead";
  if (rebound.with_fewer > 0)
    text += ", and " + std::to_string(rebound.with_fewer) +
            " of these threads may use fewer processors than before";
  return {text};
}

// Returns all processors that the recorded settings of threads name. A thread that may run on all processors
// names none.
Processors named_processors(const TaskSettings& settings) {
  Processors named;
  for (const ThreadSettings& thread : settings.threads) {
    if (thread.all_processors) continue;
    if (named.size() < thread.processors.size()) named.resize(thread.processors.size());
    for (std::size_t i = 0; i < thread.processors.size(); ++i) named[i] |= thread.processors[i];
  }
  return named;
}

bool is_proper(const TaskSettings& settings) {
  return settings.threads.size() <= kMaxTaskSettings && settings.processes.size() <= kMaxProcesses &&
         std::all_of(
             settings.threads.begin(), settings.threads.end(),
             [](const ThreadSettings& thread) { return thread.processors.size() <= kMaxProcessorWords; }) &&
         std::all_of(settings.processes.begin(), settings.processes.end(),
                     [](const ProcessSettings& process) {
                       return process.session_nice >= kLowestNice && process.session_nice <= kHighestNice;
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
    const std::int32_t session_nice = session_nice_of(process);
    if (filter == usual.core_filter && session_nice == 0) continue;
    ProcessSettings& settings = found.processes.emplace_back();
    settings.process = static_cast<std::uint32_t>(inner_number(proc_path(process, "/status")));
    settings.core_dump_filter = filter;
    settings.session_nice = session_nice;
  }
  return found;
}

Result<std::vector<std::string>> apply_settings(pid_t root, const TaskSettings& settings) {
  if (settings.threads.empty() && settings.processes.empty()) return std::vector<std::string>();
  CKPT_TRY(processes, processes_of(root));
  std::map<std::uint32_t, const ThreadSettings*> threads;
  for (const ThreadSettings& wanted : settings.threads) threads[wanted.thread] = &wanted;
  std::map<std::uint32_t, const ProcessSettings*> whole;
  for (const ProcessSettings& wanted : settings.processes) whole[wanted.process] = &wanted;
  const Processors named = named_processors(settings);
  const ProcessorMap map(named, named.empty() ? node_processors() : processors_allowed(root));
  Rebound rebound;
  for (const pid_t process : processes) {
    for (const pid_t thread : threads_of(process)) {
      if (threads.empty()) break;
      const pid_t number = inner_number(status_of_thread(process, thread));
      const auto wanted = threads.find(static_cast<std::uint32_t>(number));
      if (wanted != threads.end()) apply_to_thread(thread, *wanted->second, map, rebound);
    }
    if (whole.empty()) continue;
    const auto wanted = whole.find(static_cast<std::uint32_t>(inner_number(proc_path(process, "/status"))));
    if (wanted != whole.end()) apply_to_process(process, *wanted->second);
  }
  return remarks_on(rebound, map);
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
