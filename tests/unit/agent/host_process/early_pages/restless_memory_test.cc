// SPDX-License-Identifier: Apache-2.0
// Tests of programs that change their memory while it is copied ahead. Pages that count as held equal the
// stopped program's pages. Ranges that CRIU leaves out contain all content of watched memory. Each program
// follows a seed, which is printed. $GPUMIGRATE_MEMORY_SECONDS sets how long programs are tried;
// $GPUMIGRATE_MEMORY_SEED sets the first program's seed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "agent/host_process/early_pages/early_pages.h"
#include "agent/host_process/early_pages/held_pages.h"
#include "tests/unit/agent/host_process/program.h"

namespace ckpt::agent::host {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kLogBytes = std::uint64_t{1} << 30;
constexpr std::chrono::seconds kMaxStop{60};
constexpr std::chrono::milliseconds kOneStop{100};

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class RestlessProgram {
 public:
  explicit RestlessProgram(std::uint64_t seed) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const std::string text = std::to_string(seed);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], 1);
      ::execl(RESTLESS_PROGRAM, "restless_program", text.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    const UniqueFd output(ends[0]);
    std::array<char, 6> ready{};
    EXPECT_EQ(::read(output.get(), ready.data(), ready.size()), 6) << "the program did not begin";
  }
  ~RestlessProgram() {
    auto list = processes_of(pid_);
    ::kill(pid_, SIGKILL);
    if (list)
      for (const pid_t pid : *list) ::kill(pid, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // Stops all processes of the program and returns them; exited processes are left out. A process that waits
  // for a child that shares its memory (vfork) stops once the child has exited. In that case all processes
  // run again briefly.
  [[nodiscard]] std::vector<pid_t> stop() const {
    for (const auto deadline = steady_clock::now() + kMaxStop; steady_clock::now() < deadline;) {
      for (const auto one = steady_clock::now() + kOneStop; steady_clock::now() < one;) {
        auto stopped = try_stop();
        if (!stopped.empty()) return stopped;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (const pid_t pid : living()) ::kill(pid, SIGCONT);
    }
    ADD_FAILURE() << "the program did not stop";
    return {};
  }

 private:
  [[nodiscard]] std::vector<pid_t> living() const {
    auto list = processes_of(pid_);
    if (!list) return {};
    std::vector<pid_t> found = *std::move(list);
    std::erase_if(found, [](pid_t pid) { return process_state(pid) == 'Z' || process_state(pid) == 'X'; });
    return found;
  }
  // Tries to stop all processes. Returns an empty list if some are not stopped yet.
  [[nodiscard]] std::vector<pid_t> try_stop() const {
    const std::vector<pid_t> found = living();
    for (const pid_t pid : found) ::kill(pid, SIGSTOP);
    if (std::ranges::all_of(found, are_threads_stopped) && found == living()) return found;
    return {};
  }
  static bool are_threads_stopped(pid_t pid) {
    std::error_code unknown;
    for (const auto& thread :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", unknown)) {
      if (process_state(std::stoi(thread.path().filename().string())) != 'T') return false;
    }
    return !unknown;
  }
  pid_t pid_ = 0;
};

// Returns the mappings that the kernel reports as watched in smaps, its other interface.
std::vector<MemoryRange> watched_mappings(pid_t pid) {
  std::vector<MemoryRange> found;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/smaps");
  MemoryRange mapping;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) mapping = {begin, end};
    if (line.starts_with("VmFlags:") && line.find(" uw") != std::string::npos) found.push_back(mapping);
  }
  return found;
}

class RestlessMemoryTest : public ::testing::Test {
 protected:
  // Returns the pages with content, according to the process's page tables, that are not among `known`.
  static std::vector<std::uint64_t> unknown_pages(pid_t pid, const std::vector<MemoryRange>& known) {
    RangeSet all;
    for (const MemoryRange& range : known) all.add(range);
    const UniqueFd pages(::open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY));
    const UniqueFd memory(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY));
    std::vector<std::uint64_t> unknown;
    std::array<char, kMemoryPage> content{};
    const std::array<char, kMemoryPage> zeros{};
    for (const MemoryRange& mapping : watched_mappings(pid)) {
      for (const MemoryRange& gap : all.missing(mapping)) {
        for (std::uint64_t at = gap.begin; at < gap.end; at += kMemoryPage) {
          std::uint64_t entry = 0;
          EXPECT_EQ(::pread(pages.get(), &entry, 8, static_cast<off_t>(at / kMemoryPage * 8)), 8);
          if (entry >> 62 == 0) continue;  // neither in memory nor swapped out
          const ssize_t got = ::pread(memory.get(), content.data(), kMemoryPage, static_cast<off_t>(at));
          if (got == kMemoryPage && content != zeros) unknown.push_back(at);
        }
      }
    }
    return unknown;
  }

  // Runs one program. Returns false if its memory could not be watched at all, for example during an exec.
  static bool try_program(std::uint64_t seed, std::uint64_t& held_pages) {
    const RestlessProgram program(seed);
    auto made = EarlyPages::create(program.pid(), kLogBytes, 0, 1 << 20);
    if (!made) {
      std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed), made.error().to_string().c_str());
      return false;
    }
    EarlyPages& pages = **made;
    // Much changes between the reading of the mappings and the reading of the last mapping.
    const auto while_it_changes = [](std::uint64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    for (std::uint64_t round = 0; round < 2 + seed % 4; ++round) {
      const auto read = pages.run_round(while_it_changes);
      EXPECT_TRUE(read.has_value()) << read.error().to_string();
    }
    for (const pid_t pid : program.stop()) {
      const auto proof = pages.prove(pid);
      EXPECT_TRUE(proof.has_value()) << proof.error().to_string();
      if (!proof) continue;
      const auto same = compare_pages(pid, proof->held, pages.log());
      EXPECT_TRUE(same.has_value()) << same.error().to_string();
      const auto unknown = unknown_pages(pid, proof->left_out);
      EXPECT_TRUE(unknown.empty()) << unknown.size() << " pages of process " << pid
                                   << " are in no image, the first at " << std::hex << unknown.front();
      for (const IndexedRange& range : proof->held) held_pages += range.bytes / kMemoryPage;
    }
    return true;
  }
};

TEST_F(RestlessMemoryTest, HeldPagesMatchTheMemoryOfTheProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory is not for this";
#endif
  if (!kernel_watches_memory()) GTEST_SKIP() << "this kernel does not watch memory";
  const std::uint64_t first = number_of("GPUMIGRATE_MEMORY_SEED", std::random_device()());
  const auto end = steady_clock::now() + std::chrono::seconds(number_of("GPUMIGRATE_MEMORY_SECONDS", 3));
  std::uint64_t seed = first;
  std::uint64_t held_pages = 0;
  int followed = 0;
  do {
    SCOPED_TRACE("GPUMIGRATE_MEMORY_SEED=" + std::to_string(seed));
    if (try_program(seed++, held_pages)) ++followed;
  } while (!HasFailure() && (steady_clock::now() < end || followed == 0));
  std::printf("seeds %lu to %lu: %d programs followed, %lu pages held\n", static_cast<unsigned long>(first),
              static_cast<unsigned long>(seed - 1), followed, static_cast<unsigned long>(held_pages));
  EXPECT_GT(held_pages, 0u) << "nothing was compared";
}

}  // namespace
}  // namespace ckpt::agent::host
