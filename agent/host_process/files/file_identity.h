// SPDX-License-Identifier: Apache-2.0
// Tells whether a path names one and the same file at two nodes. Within one kernel, device and inode decide.
// Between kernels it takes a file system that both mount from the same place. NFS, Lustre and others give a
// file a handle that all clients see. Where they give none, size and times must agree, or the content is
// compared (file_compare.h).
// Threads: any; blocks as long as the file system does (offload()). Errors: none; what cannot be found out is
// empty.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ckpt::agent::host {

struct FileIdentity {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "FileIdentity";
  std::uint64_t device = 0;
  std::uint64_t inode = 0;      // 0: an older source sends no identity
  std::int64_t written_ns = 0;  // the content's last change
  std::int64_t changed_ns = 0;  // the inode's
  std::string network;          // "nfs4 server:/export": what several nodes mount; empty: the node's own
  std::string handle;           // hexadecimal, the same at every client; empty: it gives none
  template <class A>
  decltype(auto) fields(A& a) {
    return a(device, inode, written_ns, changed_ns, network, handle);
  }
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

enum class Sameness : std::uint8_t { kSame, kPerhaps, kOther };
// `one_kernel`: both were seen by the same one (running_kernel()).
[[nodiscard]] Sameness compare(const FileIdentity& there, const FileIdentity& here, bool one_kernel);
// True if neither content nor attributes have changed between the two.
[[nodiscard]] bool is_unchanged(const FileIdentity& before, const FileIdentity& now);

// Returns the kernel's boot id, which changes at each boot. Empty: not known.
[[nodiscard]] std::string running_kernel();

// True if something is mounted there: the path may then lead elsewhere than the folder that has the name.
[[nodiscard]] bool is_mount(const std::string& path);

// True for files of the kernel, which describe this node: /proc, /sys, control groups.
[[nodiscard]] bool is_kernels_own(const std::string& path);

// Finds identities by this process's mounts, which it reads once.
class FileSystems {
 public:
  // `facts` are those of `path`, which may be of the form /proc/PID/fd/N.
  [[nodiscard]] FileIdentity identity_of(const std::string& path, const struct stat& facts);

 private:
  [[nodiscard]] std::string network_of(std::uint64_t mount);
  void read_mounts();

  std::map<std::uint64_t, std::string> networks_;  // by mount, of those that several nodes mount
  bool is_read_ = false;
};

// One line of /proc/self/mountinfo: its mount's number, and "TYPE SOURCE" where several nodes mount it. For
// tests.
struct MountLine {
  std::uint64_t mount = 0;
  std::string network;
};
[[nodiscard]] MountLine parse_mount(const std::string& line);

}  // namespace ckpt::agent::host
