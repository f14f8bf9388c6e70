// SPDX-License-Identifier: Apache-2.0
// The kernel modules of one executor. Only the control thread uses them. Results are CUresult.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tests/simulators/cudasim/include/cudasim/kernel.h"

namespace cudasim {

class Modules {
 public:
  // Takes `base`, the address at which the program sees the module variables of this context.
  explicit Modules(std::uint64_t base) : next_alias_(base), alias_end_(base + (std::uint64_t{256} << 20)) {}

  // Loads the module whose bytes are in `fd`. Loading the same bytes twice gives two modules. Its variables
  // appear at `wanted`, or anywhere if `wanted` is 0.
  CUresult load(int fd, std::uint64_t wanted, std::uint64_t* id, std::uint64_t* variables);
  // Saves the content of a module's variables to a file, for restore() into the same module of another
  // executor.
  CUresult save(std::uint64_t id, int* fd, std::uint64_t* bytes);
  CUresult restore(std::uint64_t id, int fd);
  CUresult unload(std::uint64_t id);
  CUresult function(std::uint64_t id, const char* name, std::uint64_t* address,
                    const cudasim_parameters** parameters);
  CUresult global(std::uint64_t id, const char* name, std::uint64_t* address, std::uint64_t* bytes);

 private:
  struct Window {  // writable pages of a module, mapped a second time at `alias`
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t alias;
  };
  struct Module {
    void* handle;
    std::vector<Window> windows;
  };
  void open_windows(Module* module);
  bool open_window(std::uint64_t begin, std::uint64_t end, Module* module);

  std::uint64_t next_alias_;
  std::uint64_t alias_end_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Module> modules_;
};

}  // namespace cudasim
