// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/own_namespaces.h"

#include <sched.h>
#include <sys/mount.h>

namespace ckpt::keeper {
namespace {

constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV;
constexpr int kMaxStacked = 16;  // limit for mounts on top of each other at one path

// Hides what the node has mounted at the path, so that a move has fewer mounts to carry.
void detach(const char* path) {
  for (int i = 0; i < kMaxStacked && ::umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0; ++i) {
  }
}

bool mount_memory(const char* path) {
  detach(path);
  return ::mount("tmpfs", path, "tmpfs", kPlain, "mode=1777") == 0;
}

}  // namespace

bool enter_own_namespaces(bool private_tmp) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return false;
  // The node's later mounts reach the job. The job's own mounts do not reach the node.
  if (::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return false;
  detach("/proc");
  if (::mount("proc", "/proc", "proc", kPlain | MS_NOEXEC, nullptr) != 0) return false;
  detach("/dev/mqueue");  // it shows the message queues of the node's IPC namespace
  if (!mount_memory("/dev/shm")) return false;
  return !private_tmp || mount_memory("/tmp");
}

}  // namespace ckpt::keeper
