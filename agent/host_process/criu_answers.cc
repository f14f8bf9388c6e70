// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_answers.h"

#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>

#include "agent/host_process/memory_folder.h"
#include "agent/host_process/run_program.h"

namespace ckpt::agent::host {
namespace {

constexpr Milliseconds kAsking{30000};
constexpr const char* kUnshare = "/usr/bin/unshare";
// $0 is CRIU, and $1 is the file for CRIU's answers. The script writes the answers under another name first,
// because another agent may run the script at the same time.
constexpr const char* kScript =
    "mount -t tmpfs gpumigrate /run && { \"$0\" check; cp /run/criu.kdat \"$1.$$\" && mv \"$1.$$\" \"$1\"; }";

bool run_is_memory() {
  struct statfs facts {};
  return ::statfs("/run", &facts) == 0 && (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC);
}

// Creates a folder that root owns, so that no other user can forge the kernel's features for CRIU.
bool make_own_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() &&
         (facts.st_mode & 0077) == 0;
}

ProcessSpec asking(const std::string& criu, const std::string& file, const std::string& output) {
  ProcessSpec spec;
  spec.argv = {kUnshare, "--mount", "/bin/sh", "-c", kScript, criu, file};
  spec.output_path = output;
  spec.own_session = true;
  return spec;
}

}  // namespace

Task<std::string> criu_kdat_cache_dir(std::string criu, std::string version, std::string work) {
  if (::geteuid() != 0 || run_is_memory()) co_return "";
  const auto place = find_memory_place();
  if (!place) co_return "";
  const std::string folder = *place + "/gpumigrate-criu-" + version;
  const std::string file = folder + "/criu.kdat";
  if (!make_own_folder(folder)) co_return "";
  if (::access(file.c_str(), R_OK) == 0) co_return folder;
  const auto asked = co_await run_program(asking(criu, file, work + "/criu-answers.log"), kAsking);
  if (asked && ::access(file.c_str(), R_OK) == 0) co_return folder;
  spdlog::info("CRIU queries the kernel at each start, because the kernel's answers cannot be cached in {}",
               file);
  co_return "";
}

std::vector<std::string> environment_for(const std::string& answers) {
  if (answers.empty()) return {};
  return {"XDG_RUNTIME_DIR=" + answers};
}

std::vector<std::string> options_for(const std::string& answers) {
  if (answers.empty()) return {};
  return {"--unprivileged"};
}

}  // namespace ckpt::agent::host
