// SPDX-License-Identifier: Apache-2.0
// The namespaces of a job's own that it has besides its PID namespace (docs/adr/0056). The mount namespace
// has the node's tree, and mounts that the node makes or ends later. The job has its own /proc, of its own
// processes, and its own empty /dev/shm. The IPC namespace has the job's System V objects. The UTS namespace
// keeps the host's name of the start.
// Threads: the functions change the calling process, which has one thread. Errors: errno.
#pragma once

namespace ckpt::keeper {

// Moves the calling process into a copy of the node's mount namespace. Later mounts of the node reach the copy,
// and mounts of the process do not reach the node. CRIU restores from such a copy: in the node's own namespace,
// a restore that fails would leave a mount in /tmp. The function is called between fork and exec, and calls
// only system calls. It returns false with errno set.
[[nodiscard]] bool leave_mounts_of_node();

// Moves the calling process, which is process 1 of its PID namespace, into new namespaces. With
// `private_tmp`, /tmp is new and empty, too. Afterwards the caller opens each file again that the program
// inherits, because CRIU cannot save a descriptor of another mount namespace. The function is called between
// fork and exec, and calls only system calls. It returns false with errno set.
[[nodiscard]] bool enter_own_namespaces(bool private_tmp);

}  // namespace ckpt::keeper
