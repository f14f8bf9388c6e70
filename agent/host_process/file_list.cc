// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/file_list.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>

#include "agent/host_process/build_id.h"
#include "agent/host_process/collector.h"
#include "agent/host_process/named_memory/shared_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/sockets/sockets.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxPath = 4096;

bool has_kind(const struct stat& facts, FileUse use) {
  switch (use) {
    case FileUse::kFolder:
      return S_ISDIR(facts.st_mode);
    case FileUse::kDevice:
      return S_ISCHR(facts.st_mode);
    case FileUse::kOther:
      return S_ISFIFO(facts.st_mode);
    default:
      return S_ISREG(facts.st_mode);
  }
}

std::string size_text(const FileFact& fact, std::uint64_t here) {
  return fact.path + " has " + std::to_string(here) + " bytes at the target and " +
         std::to_string(fact.bytes) + " at the source";
}

// Empty: it is here as it is there.
std::string difference(const FileFact& fact) {
  struct stat facts {};
  if (::stat(fact.path.c_str(), &facts) != 0) return fact.path + " does not exist at the target";
  if (!has_kind(facts, fact.use)) return fact.path + " is of another kind at the target";
  const auto here = static_cast<std::uint64_t>(facts.st_size);
  switch (fact.use) {
    case FileUse::kRead:
      return here == fact.bytes ? "" : size_text(fact, here);
    case FileUse::kWritten:
      return here >= fact.bytes ? "" : size_text(fact, here);
    case FileUse::kProgram:
      if (here != fact.bytes) return size_text(fact, here);
      return build_id_of(fact.path) == fact.build_id ? "" : fact.path + " is another build at the target";
    case FileUse::kDevice:
      return facts.st_rdev == fact.device ? "" : fact.path + " is another device at the target";
    default:
      return {};
  }
}

bool is_path(const std::string& path) {
  return path.size() < kMaxPath && path.starts_with('/') && path.find('\0') == std::string::npos;
}

Result<void> check_form(const FileList& list) {
  const bool good = list.files.size() <= kMaxFiles && list.bound.size() <= kMaxBound &&
                    list.connected.size() <= kMaxBound && list.socket_folders.size() <= kMaxBound &&
                    is_proper(list.cached) &&
                    std::all_of(list.socket_folders.begin(), list.socket_folders.end(),
                                [](const SocketFolder& folder) { return is_path(folder.path); }) &&
                    std::all_of(list.files.begin(), list.files.end(), [](const FileFact& fact) {
                      return is_known(fact.use) && is_path(fact.path);
                    });
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

// A restore that cannot bind them would fail in the pause.
Result<void> check_sockets(const FileList& list, std::vector<std::string>& problems) {
  if (list.network == network_of(::getpid()) && !list.network.empty()) {  // it has them itself
    for (const BoundSocket& end : list.connected)
      problems.push_back("a connection within the program (" + end.protocol + " " + end.address +
                         ") cannot be moved within one network: move the job to another machine");
    return ok();
  }
  for (const auto* sockets : {&list.bound, &list.connected}) {
    for (const BoundSocket& socket : *sockets) {
      CKPT_TRY(why, why_not_bound(socket.protocol, socket.address));
      if (!why.empty())
        problems.push_back(socket.protocol + " " + socket.address + " cannot be bound at the target (" + why +
                           ")");
    }
  }
  return ok();
}

// The image and what is restored of it are there at once.
Result<void> check_room_for_restore(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::uint64_t>::max() / 2)
    return Error(ErrorCode::kProtocol, "A list of files from the source is malformed");
  auto room = check_memory_left(2 * bytes);
  if (room) return ok();
  return Error(ErrorCode::kRefused,
               "The target has no room for the program's memory, which is needed twice while it is restored")
      .caused_by(std::move(room).assume_error());
}

// A program that starts others and replaces files has some for milliseconds that could not move. They are no obstacle.
Result<Collector> settled(pid_t root, const FileRules& rules) {
  constexpr int kLooks = 3;
  constexpr std::chrono::milliseconds kNextLook{50};
  for (int look = 1;; ++look) {
    Collector collector(rules);
    CKPT_TRYV(collector.collect(root));
    if (collector.problems().empty() || look == kLooks) return collector;
    std::this_thread::sleep_for(kNextLook);
  }
}

}  // namespace

Result<FileList> collect_files(pid_t root, const FileRules& rules) {
  CKPT_TRY(collector, settled(root, rules));
  if (!collector.problems().empty())
    return refusal("The program cannot be moved to another node", collector.problems());
  FileList list = collector.take_list();
  CKPT_TRY(bytes, dump_bytes(root));
  list.memory_bytes = bytes + list.named.bytes() + list.cached.bytes();
  return list;
}

Result<std::size_t> count_obstacles(pid_t root, const FileRules& rules) {
  CKPT_TRY(collector, settled(root, rules));
  return collector.problems().size();
}

Result<void> check_files(const FileList& list, const std::vector<std::string>& cache_folders) {
  CKPT_TRYV(check_form(list));
  std::vector<std::string> problems;
  const std::set<std::string> made = paths_of(list.named);
  for (const FileFact& fact : list.files) {
    if (made.contains(fact.path)) continue;
    std::string text = difference(fact);
    if (::access(fact.path.c_str(), F_OK) != 0) {
      const CacheFile* cached = list.cached.find(fact.path);
      if (cached != nullptr) text = why_not_made(*cached, cache_folders);
    }
    if (!text.empty()) problems.push_back(std::move(text));
  }
  for (std::string& text : why_no_folder(list.socket_folders)) problems.push_back(std::move(text));
  for (std::string& text : why_not_made(list.named)) problems.push_back(std::move(text));
  CKPT_TRYV(check_sockets(list, problems));
  if (problems.empty()) return check_room_for_restore(list.memory_bytes);
  return refusal("The target does not have what the program uses", problems);
}

}  // namespace ckpt::agent::host
