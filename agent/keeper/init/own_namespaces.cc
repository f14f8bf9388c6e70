// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/own_namespaces.h"

#include <sched.h>
#include <sys/mount.h>

namespace ckpt::keeper {
namespace {

constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV;
constexpr int kMaxStacked = 16;  // limit for mounts on top of each other at one path

// Lets later mounts of the node reach the namespace, and no mount of the namespace reach the node.
bool follow_node() {
  return ::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0;
}

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

bool leave_mounts_of_node() {
  return ::unshare(CLONE_NEWNS) == 0 && follow_node();
}

bool enter_own_namespaces(bool private_tmp) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) != 0 || !follow_node()) return false;
  detach("/proc");
  if (::mount("proc", "/proc", "proc", kPlain | MS_NOEXEC, nullptr) != 0) return false;
  detach("/dev/mqueue");  // it shows the message queues of the node's IPC namespace
  if (!mount_memory("/dev/shm")) return false;
  return !private_tmp || mount_memory("/tmp");
}

}  // namespace ckpt::keeper
