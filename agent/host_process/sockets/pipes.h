// SPDX-License-Identifier: Apache-2.0
// The pipes of a process tree that lead to a process outside the tree. An end whose other end is closed leads
// to no process and travels. An example is a program that has closed the input of its child.
// Threads: any. The functions read files under /proc (use offload()). Errors: kNotFound if the tree no longer
// exists.
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
  // Records an end of the pipe: descriptor `number` of process `pid`. `access` is the descriptor's access
  // mode (O_ACCMODE).
  void note(Inode pipe, pid_t pid, int number, int access);
  // Returns the recorded pipes that lead outside their tree, each as text. The tree may run: the function
  // also checks ends that the tree has opened since. An end that was closed in the meantime leads to no
  // process.
  Result<std::vector<std::string>> to_outside(pid_t root);

 private:
  struct Pipe {
    bool is_read = false;
    bool is_written = false;
    pid_t pid = 0;
    int number = 0;
  };
  Result<std::vector<pid_t>> note_open_ones(pid_t root);
  void erase_inner_pipes();

  std::map<Inode, Pipe> pipes_;
};

}  // namespace ckpt::agent::host
