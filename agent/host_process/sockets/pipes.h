// SPDX-License-Identifier: Apache-2.0
// The pipes of a process tree: which of them lead to a process outside. An end whose other end is closed
// leads to nobody and travels, as when a program has closed the input of its child.
// Threads: any; reads files under /proc (offload()). Errors: kNotFound where the tree is gone.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "agent/host_process/processes/descriptors.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

class TreePipes {
 public:
  // Descriptor `number` of `pid`; `access`: its O_ACCMODE.
  void note(Inode pipe, pid_t pid, int number, int access);
  // The noted pipes that lead outside their tree, each as text. The tree may run: ends that it has opened
  // since are looked for, and an end that is closed meanwhile leads nowhere.
  Result<std::vector<std::string>> to_outside(pid_t root);

 private:
  struct Pipe {
    bool is_read = false;
    bool is_written = false;
    pid_t pid = 0;
    int number = 0;
  };
  Result<std::vector<pid_t>> note_open_ones(pid_t root);
  void forget_inner_ones();

  std::map<Inode, Pipe> pipes_;
};

}  // namespace ckpt::agent::host
