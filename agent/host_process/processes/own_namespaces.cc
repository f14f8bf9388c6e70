// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/own_namespaces.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxSystemVText = 16u << 20;
constexpr std::size_t kMaxDescriptorText = 1u << 16;

std::string seen_from_here(pid_t root, const std::string& folder) {
  return proc_path(root, "/root" + folder);
}

std::string namespace_of(const std::string& process, const char* kind) {
  std::error_code gone;
  return std::filesystem::read_symlink(process + "/ns/" + kind, gone).string();
}

// Returns the size of all System V shared memory of the calling thread's IPC namespace. The size is the fourth
// field of a line of /proc/sysvipc/shm (proc(5)).
Result<std::uint64_t> system_v_bytes() {
  CKPT_TRY(text, read_file("/proc/sysvipc/shm", kMaxSystemVText));
  std::uint64_t bytes = 0;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // skips the names of the fields
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string key, id, mode;
    std::uint64_t size = 0;
    if (words >> key >> id >> mode >> size) bytes += size;
  }
  return bytes;
}

// Checks whether `mount` is the node's mount `other`, or a folder of that mount, at the same path as on the
// node.
bool is_part_of(const Mount& mount, const Mount& other) {
  if (!lies_in(mount.root, other.root)) return false;
  const std::string below = mount.root.substr(other.root == "/" ? 0 : other.root.size());
  if (below.empty() || below == "/") return mount.path == other.path;
  return mount.path == (other.path == "/" ? below : other.path + below);
}

}  // namespace

std::vector<std::string> OwnNamespaces::folders() const {
  std::vector<std::string> folders;
  if (present) folders.emplace_back("/dev/shm");
  if (present && private_tmp) folders.emplace_back("/tmp");
  return folders;
}

bool OwnNamespaces::contains(const std::string& path) const {
  const std::vector<std::string> own = folders();
  return std::any_of(own.begin(), own.end(), [&path](const std::string& folder) {
    return path == folder || path.starts_with(folder + "/");
  });
}

Result<OwnMemory> own_memory(pid_t root, const OwnNamespaces& own) {
  OwnMemory memory;
  if (!own.present) return memory;
  for (const std::string& folder : own.folders()) {
    struct statfs facts {};
    if (::statfs(seen_from_here(root, folder).c_str(), &facts) != 0)
      return Error::from_errno("Cannot read the size of the job's " + folder);
    memory.bytes += static_cast<std::uint64_t>(facts.f_blocks - std::min(facts.f_bfree, facts.f_blocks)) *
                    static_cast<std::uint64_t>(facts.f_bsize);
    memory.files += facts.f_files - std::min(facts.f_ffree, facts.f_files);
  }
  Result<std::uint64_t> shared = std::uint64_t{0};
  if (!within_ipc_of(root, [&shared] { shared = system_v_bytes(); }))
    return Error(ErrorCode::kIo, "Cannot enter the job's IPC namespace");
  CKPT_TRY(bytes, shared);
  memory.bytes += bytes;
  return memory;
}

std::string why_too_much(const OwnMemory& memory, const OwnNamespaces& own) {
  const std::string where = std::string("in /dev/shm") + (own.private_tmp ? " and /tmp" : "");
  if (memory.bytes > kMaxOwnMemory)
    return "the job has " + std::to_string(memory.bytes >> 20) + " MiB of files " + where +
           " and in System V shared memory, but at most " + std::to_string(kMaxOwnMemory >> 20) +
           " MiB can be moved: let the program remove some before the move";
  if (memory.files > kMaxOwnMemoryFiles)
    return "the job has " + std::to_string(memory.files) + " files " + where + ", but at most " +
           std::to_string(kMaxOwnMemoryFiles) + " can be moved: let the program remove some before the move";
  return "";
}

bool within_ipc_of(pid_t root, const std::function<void()>& look) {
  bool entered = false;
  const auto enter = [root, &look, &entered] {
    const UniqueFd space(::open(proc_path(root, "/ns/ipc").c_str(), O_RDONLY | O_CLOEXEC));
    entered = space && ::setns(space.get(), CLONE_NEWIPC) == 0;
    if (entered) look();
  };
  try {
    std::thread(enter).join();  // setns(2) changes the IPC namespace of the calling thread only
  } catch (const std::system_error&) {
    return false;
  }
  return entered;
}

std::vector<std::string> strange_mounts(const std::vector<Mount>& of_job, const std::vector<Mount>& of_node,
                                        const OwnNamespaces& own) {
  std::multimap<std::string, const Mount*> by_device;
  for (const Mount& mount : of_node) by_device.emplace(mount.device, &mount);
  const std::vector<std::string> folders = own.folders();
  std::vector<std::string> strange;
  for (const Mount& mount : of_job) {
    const bool is_own = (mount.type == "tmpfs" && std::ranges::find(folders, mount.path) != folders.end()) ||
                        (mount.type == "proc" && mount.path == "/proc");
    const auto [first, last] = by_device.equal_range(mount.device);
    if (is_own ||
        std::any_of(first, last, [&mount](const auto& at) { return is_part_of(mount, *at.second); }))
      continue;
    strange.push_back(mount.path);
  }
  return strange;
}

std::vector<std::string> changed_own_mounts(const std::vector<Mount>& of_job,
                                            const std::vector<Mount>& of_node, const OwnNamespaces& own) {
  std::set<std::string> devices;
  for (const Mount& mount : of_node) devices.insert(mount.device);
  std::vector<std::string> changed;
  const auto check = [&of_job, &devices, &changed](const std::string& path, const char* type) {
    std::vector<const Mount*> there;
    for (const Mount& mount : of_job)
      if (mount.path == path) there.push_back(&mount);
    const auto own_ones = std::ranges::count_if(
        there, [&devices](const Mount* mount) { return !devices.contains(mount->device); });
    // The node may have mounts at the path, too. The job's own mount covers them.
    const bool is_on_top =
        !there.empty() && !devices.contains(there.back()->device) && there.back()->type == type;
    if (own_ones != 1 || !is_on_top) changed.push_back(path);
  };
  for (const std::string& folder : own.folders()) check(folder, "tmpfs");
  if (own.present) check("/proc", "proc");
  return changed;
}

std::vector<std::string> why_not_own(pid_t root, const OwnNamespaces& own) {
  const std::string job = proc_path(root, "");
  for (const char* kind : {"mnt", "ipc", "uts"}) {
    if (namespace_of(job, kind) == namespace_of("/proc/self", kind))
      return {std::string("the job has the node's ") + kind +
              " namespace, although the job was started with --namespaces own: an older agent or keeper "
              "started the job, so start the job again"};
  }
  const auto of_job = mounts_seen_by(job);
  const auto of_node = mounts_seen_by("/proc/self");
  if (!of_job || !of_node)
    return {"the job's mounts cannot be compared with the node's: " +
            (of_job ? of_node : of_job).error().to_string()};
  std::vector<std::string> texts;
  for (const std::string& path : changed_own_mounts(*of_job, *of_node, own))
    texts.push_back("the program has unmounted the job's own " + path +
                    ", or has mounted something else there: start the job again");
  for (const std::string& path : strange_mounts(*of_job, *of_node, own))
    texts.push_back("the job has a mount at " + path +
                    " that this node does not have there: let the program unmount it before the move");
  return texts;
}

int mount_of_descriptor(pid_t pid, int number) {
  constexpr std::string_view kField = "mnt_id:";
  const Result<std::string> text =
      read_file(proc_path(pid, "/fdinfo/") + std::to_string(number), kMaxDescriptorText);
  const std::size_t at = text.has_value() ? text->find(kField) : std::string::npos;
  return at == std::string::npos ? -1 : std::atoi(text->c_str() + at + kField.size());
}

}  // namespace ckpt::agent::host
