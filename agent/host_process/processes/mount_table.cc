// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/mount_table.h"

#include <sys/mount.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kMaxTableBytes = 16u << 20;

// Returns a path of the table without its escapes, such as "\\040" for a space.
std::string unescaped(const std::string& text) {
  std::string path;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool is_escape = text[at] == '\\' && at + 3 < text.size();
    path += is_escape ? static_cast<char>(std::strtol(text.substr(at + 1, 3).c_str(), nullptr, 8)) : text[at];
    if (is_escape) at += 3;
  }
  return path;
}

std::uint32_t flags_of(const std::string& options) {
  std::uint32_t flags = 0;
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "ro") flags |= MS_RDONLY;
    if (word == "nosuid") flags |= MS_NOSUID;
    if (word == "nodev") flags |= MS_NODEV;
    if (word == "noexec") flags |= MS_NOEXEC;
    if (word == "noatime") flags |= MS_NOATIME;
    if (word == "nodiratime") flags |= MS_NODIRATIME;
    if (word == "relatime") flags |= MS_RELATIME;
  }
  return flags;
}

std::uint32_t number_after(const std::string& word, std::string_view prefix) {
  std::uint32_t number = 0;
  if (word.starts_with(prefix))
    (void)std::from_chars(word.data() + prefix.size(), word.data() + word.size(), number);
  return number;
}

// Checks the options of a FUSE file system. Without allow_other, only the user who mounted it may look at it.
bool excludes_root(const std::string& type, const std::string& options) {
  if (!type.starts_with("fuse") || type == "fusectl") return false;
  bool is_others = false;
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "allow_other") return false;
    if (word.starts_with("user_id=") && word != "user_id=0") is_others = true;
  }
  return is_others;
}

// The fields are "ID PARENT DEVICE ROOT PATH OPTIONS [shared:N] [master:N] … - TYPE SOURCE OPTIONS"
// (proc(5)).
bool parse(const std::string& line, Mount& mount) {
  std::istringstream words(line);
  std::string root, path, options;
  words >> mount.id >> mount.parent >> mount.device >> root >> path >> options;
  mount.root = unescaped(root);
  mount.path = unescaped(path);
  mount.flags = flags_of(options);
  std::uint32_t master = 0;
  std::string word;
  while (words >> word && word != "-") {
    mount.group = std::max(mount.group, number_after(word, "shared:"));
    master = std::max(master, number_after(word, "master:"));
    mount.is_unbindable = mount.is_unbindable || word == "unbindable";
  }
  if (mount.group == 0) mount.group = master;
  words >> mount.type;
  const bool is_whole = !words.fail() && mount.path.starts_with('/');
  std::string source, of_system;
  words >> source >> of_system;
  mount.is_of_one_user = excludes_root(mount.type, of_system);
  return is_whole;
}

}  // namespace

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || folder == "/" || (path.starts_with(folder) && path[folder.size()] == '/');
}

std::vector<Mount> parse_mounts(const std::string& text) {
  std::vector<Mount> mounts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && mounts.size() <= kMaxMounts;) {
    if (Mount mount; parse(line, mount)) mounts.push_back(std::move(mount));
  }
  return mounts;
}

Result<std::vector<Mount>> mounts_seen_by(const std::string& process) {
  CKPT_TRY(text, read_file(process + "/mountinfo", kMaxTableBytes));
  std::vector<Mount> mounts = parse_mounts(text);
  if (mounts.size() > kMaxMounts)
    return Error(ErrorCode::kRefused, process + "/mountinfo has more than " + std::to_string(kMaxMounts) +
                                          " mounts, which is the limit for jobs with their own namespaces");
  return mounts;
}

void remove_covered(std::vector<Mount>& mounts) {
  std::set<std::pair<int, std::string>> covers;  // parent and path of each mount
  std::map<int, std::pair<int, std::string>> known;
  for (const Mount& mount : mounts) {
    if (mount.id != mount.parent) covers.emplace(mount.parent, mount.path);
    known.emplace(mount.id, std::pair(mount.parent, mount.path));
  }
  // Checks whether another mount covers a folder on the path from the root of mount `parent` to `path`.
  const auto is_covered_on_the_way = [&covers](int parent, const std::string& path) {
    for (std::size_t end = path.size(); end > 1;) {
      end = path.rfind('/', end - 1);
      if (covers.contains({parent, end == 0 ? "/" : path.substr(0, end)})) return true;
      if (end == 0) break;
    }
    return false;
  };
  const auto is_covered = [&](const Mount& mount) {
    if (covers.contains({mount.id, mount.path})) return true;  // another mount covers this one completely
    int parent = mount.parent;
    std::string path = mount.path;
    auto at = known.find(parent);
    for (std::size_t depth = 0; at != known.end() && depth < known.size(); at = known.find(parent), ++depth) {
      if (path != at->second.second && is_covered_on_the_way(parent, path)) return true;
      path = at->second.second;
      parent = at->second.first;
    }
    return false;
  };
  std::erase_if(mounts, is_covered);
}

}  // namespace ckpt::agent::host
