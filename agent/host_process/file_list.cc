// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/file_list.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>

#include "agent/host_process/collector.h"
#include "agent/host_process/files/fleeting_files.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/sockets.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxPath = 4096;
constexpr int kMaxLooks = 4;
constexpr int kMaxLists = 2;
constexpr std::chrono::milliseconds kBetweenLooks{30};

bool is_path(const std::string& path) {
  return path.size() < kMaxPath && path.starts_with('/') && path.find('\0') == std::string::npos;
}

Result<void> check_form(const FileList& list) {
  const bool good =
      list.files.size() <= kMaxFiles && list.bound.size() <= kMaxBound &&
      list.connected.size() <= kMaxBound && list.socket_folders.size() <= kMaxBound &&
      is_proper(list.cached) && list.folders.size() <= kMaxFiles && list.locks.size() <= kMaxLocks &&
      std::all_of(list.folders.begin(), list.folders.end(),
                  [](const FolderFact& folder) { return is_path(folder.path); }) &&
      std::all_of(list.locks.begin(), list.locks.end(),
                  [](const FileLock& lock) { return is_path(lock.path); }) &&
      std::all_of(list.socket_folders.begin(), list.socket_folders.end(),
                  [](const SocketFolder& folder) { return is_path(folder.path); }) &&
      std::all_of(list.files.begin(), list.files.end(),
                  [](const FileFact& fact) { return is_known(fact.use) && is_path(fact.path); });
  if (good) return ok();
  return Error(ErrorCode::kProtocol, "A list of files from the source is malformed");
}

std::set<std::string> paths_of(const NamedMemory& memory) {
  std::set<std::string> paths;
  for (const NamedFile& file : memory.files) {
    for (const std::string& name : file.names) paths.insert(kSharedFolder + name);
  }
  return paths;
}

// Checks that the program's sockets can be bound at the target. Otherwise the restore would fail, while the
// program is paused.
Result<void> check_sockets(const FileList& list, std::vector<std::string>& problems) {
  if (list.network == network_of(::getpid()) &&
      !list.network.empty()) {  // the program's sockets are in the network of this process
    for (const BoundSocket& end : list.connected)
      problems.push_back("a connection within the program (" + end.protocol + " " + end.address +
                         ") cannot be moved within one network namespace: move the job to another machine");
    return ok();
  }
  for (const auto* sockets : {&list.bound, &list.connected}) {
    for (const BoundSocket& socket : *sockets) {
      CKPT_TRY(reason, why_not_bound(socket.protocol, socket.address));
      if (!reason.empty())
        problems.push_back(socket.protocol + " " + socket.address + " cannot be bound at the target (" +
                           reason + ")");
    }
  }
  return ok();
}

// Checks the free memory for a restore. The image and the restored memory exist at the same time.
Result<void> check_room_for_restore(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::uint64_t>::max() / 2)
    return Error(ErrorCode::kProtocol, "A list of files from the source is malformed");
  auto room = check_memory_left(2 * bytes);
  if (room) return ok();
  return Error(ErrorCode::kRefused,
               "The target has too little memory: a restore needs twice as much memory as the program uses")
      .caused_by(std::move(room).error());
}

std::vector<std::string> compare_files(const FileList& list, const std::vector<std::string>& cache_folders,
                                       Compared when, CheckedFiles& checked) {
  FileComparison comparison(when, !list.kernel.empty() && list.kernel == running_kernel(), list.seed);
  std::set<std::string> shared_folders;
  for (const FolderFact& folder : list.folders) {
    if (when == Compared::kNow && comparison.is_same(folder)) shared_folders.insert(folder.path);
  }
  std::vector<std::string> problems;
  const std::set<std::string> made = paths_of(list.named);
  for (const FileFact& fact : list.files) {
    if (made.contains(fact.path)) continue;
    bool is_same = false;
    std::string text = comparison.difference(fact, is_same);
    const CacheFile* cached = list.cached.find(fact.path);
    if (cached != nullptr && ::access(fact.path.c_str(), F_OK) != 0)
      text = why_not_made(*cached, cache_folders);
    const bool in_shared = shared_folders.contains(std::filesystem::path(fact.path).parent_path().string());
    // The folder is shared, so the source has removed or replaced the file since the list was made. That is
    // no obstacle.
    if (has_content(fact.use) && in_shared && !fact.is_mount && !is_mount(fact.path)) text.clear();
    if (!text.empty()) problems.push_back(std::move(text));
    if (is_same) checked.same.insert(fact.path);
  }
  return problems;
}

// Collects the files again while there are obstacles, at most kMaxLooks times. A short-lived child, or a file
// during a rename, can be an obstacle in one collection and not in the next.
Result<Collector> scan_until_settled(pid_t root, const FileRules& rules) {
  for (int looks = 1;; ++looks) {
    Collector collector(rules);
    CKPT_TRYV(collector.collect(root));
    if (collector.problems().empty() || looks == kMaxLooks) return collector;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// Lists the files without short-lived ones (fleeting_files.h). If there were any, the function makes a new
// list. The new list has a file's new name, and counts a file that is open without a name.
Result<FileList> list_lasting_files(pid_t root, const FileRules& rules) {
  for (int lists = 1;; ++lists) {
    CKPT_TRY(collector, scan_until_settled(root, rules));
    if (!collector.problems().empty())
      return refusal("The program cannot be moved to another node", collector.problems());
    FileList list = collector.release_list();
    if (!leave_out_fleeting(list.files) || lists == kMaxLists) return list;
  }
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  (void)!::getrandom(&seed, sizeof seed, 0);
  return seed;
}

}  // namespace

Result<FileList> collect_files(pid_t root, const FileRules& rules) {
  CKPT_TRY(list, list_lasting_files(root, rules));
  list.kernel = running_kernel();
  list.seed = random_seed();
  ContentReader reader(list.seed);
  describe_content(list.files, reader, !rules.for_image);
  list.folders = folders_of(list.files);
  CKPT_TRY(bytes, dump_bytes(root));
  list.memory_bytes = bytes + list.named.bytes() + list.cached.bytes();
  return list;
}

Result<std::size_t> count_obstacles(pid_t root, const FileRules& rules) {
  CKPT_TRY(collector, scan_until_settled(root, rules));
  return collector.problems().size();
}

Result<CheckedFiles> check_files(const FileList& list, const std::vector<std::string>& cache_folders,
                                 Compared when) {
  CKPT_TRYV(check_form(list));
  CheckedFiles checked;
  std::vector<std::string> problems = compare_files(list, cache_folders, when, checked);
  for (const FileLock& lock : list.locks) {
    if (std::string text = why_not_taken(lock); !text.empty()) problems.push_back(std::move(text));
  }
  for (std::string& text : why_no_folder(list.socket_folders)) problems.push_back(std::move(text));
  for (std::string& text : why_not_made(list.named)) problems.push_back(std::move(text));
  CKPT_TRYV(check_sockets(list, problems));
  if (!problems.empty())
    return refusal("The target lacks files, sockets or addresses that the program uses", problems);
  CKPT_TRYV(check_room_for_restore(list.memory_bytes));
  return checked;
}

}  // namespace ckpt::agent::host
