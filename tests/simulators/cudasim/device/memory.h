// SPDX-License-Identifier: Apache-2.0
// The physical memory that one executor holds, and its mappings. Only the control thread uses it. Results are
// CUresult.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/simulators/cudasim/card/card.h"

namespace cudasim {

class DeviceMemory {
 public:
  // Takes the `cards` by physical index; `device` is the executor's own.
  DeviceMemory(std::vector<std::unique_ptr<Card>>* cards, int device, pid_t program)
      : cards_(*cards), device_(device), program_(program) {}

  CUresult create(std::uint64_t bytes, bool exportable, std::uint64_t* id);
  // Imports a descriptor of exported memory of any device of this machine.
  CUresult import(int fd, std::uint64_t* id, std::uint64_t* bytes, int* device);
  // Imports a descriptor of a peer executor's memory, which need not be exportable.
  CUresult attach(int fd, std::uint64_t* id, std::uint64_t* bytes, int* device);
  // Returns a descriptor that holds the memory on its own. The caller closes the descriptor.
  CUresult share(std::uint64_t id, int* fd);
  // Returns the executor's own descriptor of the memory, and the file's st_dev and st_ino.
  CUresult number(std::uint64_t id, std::uint64_t out[3]);
  CUresult drop(std::uint64_t id);
  CUresult map(std::uint64_t id, std::uint64_t address, bool writable);

  // Removes access to the range. The addresses stay reserved.
  static CUresult unmap(std::uint64_t address, std::uint64_t bytes);
  static CUresult map_host(int fd, std::uint64_t address, std::uint64_t bytes);

 private:
  struct Memory {
    int fd;
    int entry;
    std::uint64_t bytes;
    Card* card;
  };
  CUresult adopt(int fd, bool exported_only, std::uint64_t* id, std::uint64_t* bytes, int* device);

  std::vector<std::unique_ptr<Card>>& cards_;
  int device_;
  pid_t program_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Memory> held_;
};

}  // namespace cudasim
