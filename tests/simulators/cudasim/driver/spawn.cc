// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/spawn.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/simulators/cudasim/card/settings.h"

namespace cudasim {
namespace {

std::string find_executor() {
  if (const char* path = std::getenv("CUDASIM_DEVICE")) return path;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&spawn_executor), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string library(info.dli_fname);
  const std::string folder = library.substr(0, library.rfind('/'));
  for (const char* place : {"/cudasim-device", "/../../bin/cudasim-device", "/../bin/cudasim-device"}) {
    if (::access((folder + place).c_str(), X_OK) == 0) return folder + place;
  }
  return "";
}

// Returns the program's environment without the variables that only affect the program's own start.
std::vector<std::string> executor_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = name == "LD_PRELOAD=" || name == "CUDASIM_DIR=" || name == "CUDASIM_DEVICES=" ||
                          name == "CUDASIM_MEMORY=" || name == "CUDASIM_HUGE_PAGES=";
    if (!replaced) out.push_back(text);
  }
  out.push_back("CUDASIM_DIR=" + settings().dir);
  out.push_back("CUDASIM_DEVICES=" + std::to_string(settings().devices));
  out.push_back("CUDASIM_MEMORY=" + std::to_string(settings().memory));
  out.push_back("CUDASIM_HUGE_PAGES=" + std::to_string(settings().huge_pages ? 1 : 0));
  return out;
}

}  // namespace

bool spawn_executor(int socket) {
  const std::string path = find_executor();
  if (path.empty()) {
    std::fputs("cudasim: cudasim-device not found beside libcuda.so.1 (set CUDASIM_DEVICE to its path)\n",
               stderr);
    return false;
  }
  const std::vector<std::string> environment = executor_environment();
  std::vector<char*> variables;
  for (const std::string& entry : environment) variables.push_back(const_cast<char*>(entry.c_str()));
  variables.push_back(nullptr);
  char name[] = "cudasim-device";
  char* arguments[] = {name, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, path.c_str(), &actions, &attributes, arguments, variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    std::fprintf(stderr, "cudasim: %s cannot be started (errno %d)\n", path.c_str(), failed);
    return false;
  }
  // The executor detaches by a second fork, and this child exits. ECHILD means that the program ignores
  // SIGCHLD.
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return true;
}

}  // namespace cudasim
