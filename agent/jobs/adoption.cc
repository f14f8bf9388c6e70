// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/adoption.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/host_process/criu_image/pid_namespace_image.h"
#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxProcText = 4u << 20;
constexpr std::size_t kMaxArguments = 64u << 10;

std::string proc(pid_t pid, const char* rest) {
  return "/proc/" + std::to_string(pid) + rest;
}

std::string label(pid_t pid) {
  return "Process " + std::to_string(pid);
}

Error refused(const std::string& cause) {
  return {ErrorCode::kRefused, cause};
}

Result<void> find_process(const Config& config, const wire::InspectProcess& request, std::uint64_t& ticks) {
  const std::string where = " on node " + config.node;
  const Result<std::string> boot = read_file("/proc/sys/kernel/random/boot_id", 64);
  const bool same_machine = request.machine.empty() ||
                            (boot.has_value() && boot->substr(0, request.machine.size()) == request.machine);
  if (!same_machine)
    return Error(ErrorCode::kNotFound, "Node " + config.node +
                                           " is not the machine on which the command runs: name the node "
                                           "with --node, and give the process id on that node");
  ticks = request.pid > 1 ? host::start_ticks_of(request.pid) : 0;
  if (ticks != 0 && (request.start_ticks == 0 || request.start_ticks == ticks)) return ok();
  return Error(ErrorCode::kNotFound, "There is no process " + std::to_string(request.pid) + where);
}

// Checks that the process belongs to no job and has not loaded our libraries. The jobs are checked first,
// because a job's name is more useful to the user than the name of a library.
Result<void> check_is_free(const JobTable& jobs, pid_t pid) {
  for (const auto& job : jobs.all()) {
    if (job->unknown() && job->record().spec.adopt_pid == pid)
      return refused(label(pid) + " may belong to job " + wire::job_text(job->id()) +
                     " already: " + job->instance().reason);
    if (job->ended() || job->rank_pid() <= 1) continue;
    const auto tree = host::processes_of(static_cast<pid_t>(job->rank_pid()));
    const bool its = tree.has_value() && std::find(tree->begin(), tree->end(), pid) != tree->end();
    if (its)
      return refused(label(pid) + " belongs to job " + job->record().spec.name + " (" +
                     wire::job_text(job->id()) + ") already");
  }
  const Result<std::string> maps = read_file(proc(pid, "/maps"), kMaxProcText);
  if (!maps.has_value())
    return refused("The memory map of process " + std::to_string(pid) + " cannot be read");
  for (const char* library : {"/libckpt_shim.so", "/libckpt.so"}) {
    if (maps->find(library) != std::string::npos)
      return refused(
          label(pid) + " runs with " + (library + 1) +
          " already: programs started with `gpumigrate run` are jobs and can be moved without adoption");
  }
  return ok();
}

Result<void> check_surroundings(pid_t pid) {
  CKPT_TRY(own, host::pid_namespace_of(0));
  CKPT_TRY(its, host::pid_namespace_of(pid));
  if (own != its) return refused(label(pid) + " is in a container (another PID namespace)");
  return ok();
}

Result<void> read_identity(pid_t pid, wire::ProcessFacts& facts) {
  struct stat owner {};
  if (::stat(proc(pid, "").c_str(), &owner) != 0)
    return Error(ErrorCode::kNotFound, label(pid) + " has ended");
  facts.uid = owner.st_uid;
  facts.gid = owner.st_gid;
  if (::geteuid() != 0 && facts.uid != ::geteuid())
    return refused(label(pid) + " belongs to user " + std::to_string(facts.uid) +
                   ", and this agent does not run as root");
  CKPT_TRYV(host::check_credentials(pid, facts.uid, facts.gid));
  CKPT_TRY(words, read_file(proc(pid, "/cmdline"), kMaxArguments));
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find('\0', at), words.size());
    facts.argv.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  if (facts.argv.empty() || facts.argv.front().empty()) return refused(label(pid) + " has no command line");
  std::error_code error;
  facts.cwd = std::filesystem::read_symlink(proc(pid, "/cwd"), error).string();
  if (!facts.cwd.starts_with('/')) facts.cwd = "/";
  return ok();
}

Task<Result<void>> check_context(ContextHelper& contexts, pid_t pid) {
  CKPT_CO_TRY(can, co_await contexts.ready());
  if (!can.can_checkpoint)
    co_return Error(ErrorCode::kNotSupported,
                    "This node's driver cannot save a context: " + can.missing_support());
  auto state = co_await contexts.state(pid);
  if (!state && state.error().code() == ErrorCode::kNotFound)
    co_return refused(label(pid) + " is not a CUDA process: the driver does not know it");
  if (!state) co_return std::move(state).error();
  if (*state == context::ProcessState::kRunning) co_return ok();
  co_return refused("Another program holds the GPU context of process " + std::to_string(pid) +
                    ": the driver reports the context as " + context::name_of(*state));
}

Result<void> find_gpu(const AdoptionContext& context, pid_t pid, wire::ProcessFacts& facts) {
  const InventorySnapshot& now = context.inventory.last();
  int found = 0;
  for (const GpuFacts& gpu : now.gpus) {
    for (const GpuProcess& process : gpu.processes) {
      if (process.pid != pid) continue;
      facts.gpu_index = gpu.index;
      facts.device_bytes += process.bytes;
      ++found;
    }
  }
  if (found == 1) return ok();
  if (found == 0) return refused(label(pid) + " has no context on a GPU of node " + context.config.node);
  return Error(ErrorCode::kNotSupported, label(pid) + " uses " + std::to_string(found) +
                                             " GPUs: jobs with more than one cannot be moved yet");
}

}  // namespace

std::uint64_t device_bytes_of(const InventorySnapshot& snapshot, pid_t pid) {
  std::uint64_t bytes = 0;
  for (const GpuFacts& gpu : snapshot.gpus) {
    for (const GpuProcess& process : gpu.processes) bytes += process.pid == pid ? process.bytes : 0;
  }
  return bytes;
}

Task<Result<wire::ProcessFacts>> inspect_process(AdoptionContext context, wire::InspectProcess request) {
  const pid_t pid = request.pid;
  wire::ProcessFacts facts;
  facts.request_id = request.request_id;
  CKPT_CO_TRYV(find_process(context.config, request, facts.start_ticks));
  CKPT_CO_TRYV(check_is_free(context.jobs, pid));
  CKPT_CO_TRYV(check_surroundings(pid));
  CKPT_CO_TRYV(co_await check_context(context.contexts, pid));
  co_await context.inventory.refresh();
  CKPT_CO_TRYV(find_gpu(context, pid, facts));
  CKPT_CO_TRYV(read_identity(pid, facts));
  if (host::start_ticks_of(pid) != facts.start_ticks)
    co_return Error(ErrorCode::kNotFound, label(pid) + " has ended");
  co_return facts;
}

}  // namespace ckpt::agent
