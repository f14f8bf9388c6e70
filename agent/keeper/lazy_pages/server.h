// SPDX-License-Identifier: Apache-2.0
// Provides the missing memory of restored processes, from their restore until all memory is present.
// Threads: one. Ownership: the mapped files of pages, the processes' userfaultfd. Errors: errors of the plan,
// of CRIU and of the kernel. After an error the processes must not continue.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>

#include "agent/keeper/lazy_pages/plan.h"
#include "agent/keeper/lazy_pages/process_pages.h"
#include "agent/keeper/lazy_pages/restoring_criu.h"

namespace ckpt::lazy_pages {

class Server {
 public:
  static Result<Server> create(const std::string& folder);
  ~Server();
  Server(Server&& other) noexcept;
  Server& operator=(Server&&) = delete;

  Result<void> run(int listener, Nanos deadline);

 private:
  Server() = default;
  Result<const std::byte*> map_pages(const std::string& folder, const MissingRange& range);
  Result<void> receive_process(RestoringCriu& criu);
  Result<void> run_once(RestoringCriu& criu);

  struct Mapping {
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
  };
  std::map<std::uint32_t, Mapping> files_;
  std::map<std::uint32_t, MissingMemory> missing_;  // missing memory of processes that CRIU has not sent yet
  std::list<ProcessPages> processes_;
  bool is_restored_ = false;  // false while mappings may still be missing
};

}  // namespace ckpt::lazy_pages
