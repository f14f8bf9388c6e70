// SPDX-License-Identifier: Apache-2.0
// Checks whether a path names the same file at two nodes. Within one kernel, device and inode decide. Between
// kernels, both nodes must mount a file system from the same place. NFS, Lustre and other file systems assign
// to each file a handle that all clients see. Without handles, size and times must agree, or the content is
// compared (file_compare.h).
// Threads: any. The functions block as long as the file system does (use offload()). Errors: none. Facts that
// cannot be determined are empty.
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
  std::uint64_t inode = 0;      // inode number; 0 if an older source sends no identity
  std::int64_t written_ns = 0;  // time of the content's last change
  std::int64_t changed_ns = 0;  // time of the inode's last change
  std::string network;          // mount that several nodes share, such as "nfs4 server:/export"; empty if the
                                // mount is the node's own
  std::string handle;           // file handle in hexadecimal, the same at every client; empty if the file
                                // system has no handles
  template <class A>
  decltype(auto) fields(A& a) {
    return a(device, inode, written_ns, changed_ns, network, handle);
  }
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

enum class Sameness : std::uint8_t { kSame, kPerhaps, kOther };
// Compares the identities of a file at the source (`there`) and at this node (`here`). `one_kernel` means
// that the same kernel produced both identities (running_kernel()).
[[nodiscard]] Sameness compare(const FileIdentity& there, const FileIdentity& here, bool one_kernel);
// Checks that neither content nor attributes have changed between `before` and `now`.
[[nodiscard]] bool is_unchanged(const FileIdentity& before, const FileIdentity& now);

// Returns the kernel's boot id, which changes at each boot. An empty string means that the id is unknown.
[[nodiscard]] std::string running_kernel();

// Checks whether something is mounted at `path`. The path may then lead to a different place than the folder
// entry of that name.
[[nodiscard]] bool is_mount(const std::string& path);

// Checks whether the path is on a file system of the kernel that describes this node, such as /proc, /sys or
// control groups.
[[nodiscard]] bool is_kernels_own(const std::string& path);

// Finds the identities of files, using this process's mount table, which it reads once.
class FileSystems {
 public:
  // Returns the identity of a file. `facts` describe `path`, which may have the form /proc/PID/fd/N.
  [[nodiscard]] FileIdentity identity_of(const std::string& path, const struct stat& facts);

 private:
  [[nodiscard]] std::string network_of(std::uint64_t mount);
  void read_mounts();

  std::map<std::uint64_t, std::string> networks_;  // names of the mounts that several nodes share, by mount
                                                   // number
  bool is_read_ = false;
};

// One line of /proc/self/mountinfo. It has the mount's number, and "TYPE SOURCE" if several nodes share the
// mount. Tests use this type.
struct MountLine {
  std::uint64_t mount = 0;
  std::string network;
};
[[nodiscard]] MountLine parse_mount(const std::string& line);

}  // namespace ckpt::agent::host
