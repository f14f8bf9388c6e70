// SPDX-License-Identifier: Apache-2.0
// cudasim-ctl: shows the software devices of a state folder and injects faults into them from outside.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulators/cudasim/card/card.h"
#include "tests/simulators/cudasim/card/settings.h"

namespace {

using namespace cudasim;

constexpr int kUsage = 64;

int usage() {
  std::fputs(
      "usage: cudasim-ctl [--dir DIR] [--device N] COMMAND\n"
      "  status             devices, memory, processes, injected faults\n"
      "  limit BYTES        memory that allocations may use (units: KiB MiB GiB)\n"
      "  latency US         delay before each kernel, copy and memory set\n"
      "  fail-copy N        the Nth next copy fails (CUDA_ERROR_ECC_UNCORRECTABLE, sticky)\n"
      "  lose-device        every context fails with CUDA_ERROR_DEVICE_UNAVAILABLE, NVML with GPU_IS_LOST\n"
      "  xid CODE [--pid PID] [--quiet]   an Xid event; the contexts of PID get a sticky error, unless "
      "--quiet\n"
      "  hang-nvml          calls of NVML about devices do not return until reset\n"
      "  recovery N         the recovery action (NVML field 230)\n"
      "  remap pending|failed   row remapping (NVML fields 144, 145)\n"
      "  ecc KIND N         an error counter: volatile-corrected, volatile-uncorrected, "
      "aggregate-corrected,\n"
      "                     aggregate-uncorrected, rows-corrected, rows-uncorrected (NVML fields 3-6, 142, "
      "143)\n"
      "  hang               kernels, copies and memory sets do not end until reset; no Xid, and NVML "
      "answers\n"
      "  wedge-on-kill      killing a program whose context has come back by a restore hangs the card, as "
      "`hang`\n"
      "  swap               another card (UUID) in this one's place, for good\n"
      "  reset              takes back every injected fault\n"
      "DIR: $CUDASIM_DIR, or /dev/shm/cudasim-UID\n",
      stderr);
  return kUsage;
}

std::optional<std::uint32_t> number(const std::string& text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(value);
}

// Returns the error that a process sees after an Xid has killed its context.
CUresult error_of_xid(std::uint32_t code) {
  switch (code) {
    case 31:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case 48:
    case 63:
    case 64:
    case 95:
      return CUDA_ERROR_ECC_UNCORRECTABLE;
    case 94:
      return CUDA_ERROR_CONTAINED;
    case 79:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

void print_status(Card& card, const std::string& dir) {
  const Card::Memory memory = card.memory();
  const CardState& state = card.state();
  std::printf("device %d %s\n", card.index(), uuid_text(device_uuid(dir, card.index())).c_str());
  std::printf("  memory %llu used %llu limit %llu\n",
              static_cast<unsigned long long>(state.configured_memory),
              static_cast<unsigned long long>(memory.used), static_cast<unsigned long long>(memory.total));
  std::printf(
      "  lost %u hung %u latency_us %u fail_copy %u recovery %u remap_pending %u remap_failed %u xids %llu\n",
      state.lost.load(), state.hung.load(), state.latency_us.load(), state.fail_copy.load(),
      state.recovery_action.load(), state.remap_pending.load(), state.remap_failed.load(),
      static_cast<unsigned long long>(card.xid_count()));
  for (const ProcessUse& use : card.processes()) {
    std::printf("  process %d used %llu\n", static_cast<int>(use.pid),
                static_cast<unsigned long long>(use.bytes));
  }
  for (const ContextEntry& context : card.contexts()) {
    std::printf("  context of %d executor %d\n", context.program, context.executor);
  }
}

// Runs "xid CODE [--pid PID] [--quiet]". A bare PID is equivalent to --pid PID.
int inject_xid(Card& card, std::vector<std::string> words) {
  const auto take = [&words](const char* word) { return std::erase(words, word) > 0; };
  const bool quiet = take("--quiet");
  take("--pid");
  const auto code = words.size() > 1 ? number(words[1]) : std::nullopt;
  const auto pid = words.size() > 2 ? number(words[2]) : std::optional<std::uint32_t>(0);
  if (!code || !pid || words.size() > 3) return usage();
  if (*pid != 0 && !quiet && card.inject_error(static_cast<pid_t>(*pid), error_of_xid(*code)) == 0) {
    std::fprintf(stderr, "cudasim-ctl: process %u has no context on device %d\n", *pid, card.index());
    return 1;
  }
  card.raise_xid(*code, static_cast<pid_t>(*pid));
  return 0;
}

int set_number(Card& card, std::atomic<std::uint32_t>& field, const std::string& text) {
  const auto value = number(text);
  if (!value) return usage();
  field = *value;
  card.notify();
  return 0;
}

// Runs the command "ecc KIND N", which sets a counter of errors or of remapped rows.
int set_counter(Card& card, const std::string& kind, const std::string& text) {
  CardState& state = card.state();
  if (kind == "rows-corrected") return set_number(card, state.remapped_corrected, text);
  if (kind == "rows-uncorrected") return set_number(card, state.remapped_uncorrected, text);
  const auto value = number(text);
  EccCounters& counters = kind.starts_with("aggregate-") ? state.ecc_aggregate : state.ecc_volatile;
  const std::string what = kind.substr(std::min(kind.size(), kind.find('-') + 1));
  const bool known = kind == "volatile-" + what || kind == "aggregate-" + what;
  if (!value || !known || (what != "corrected" && what != "uncorrected")) return usage();
  (what == "corrected" ? counters.corrected : counters.uncorrected) = *value;
  card.notify();
  return 0;
}

int run(Card& card, const std::string& dir, const std::vector<std::string>& words) {
  const std::string& command = words[0];
  CardState& state = card.state();
  if (words.size() == 1) {
    if (command == "status") print_status(card, dir);
    if (command == "lose-device") state.lost = 1;
    if (command == "hang") state.hung = 1;
    if (command == "wedge-on-kill") state.wedge_on_kill = 1;
    if (command == "swap") swap_card(dir, card.index());
    if (command == "hang-nvml") std::ofstream(dir + "/nvml-hangs").flush();
    if (command == "reset") {
      ::unlink((dir + "/nvml-hangs").c_str());
      card.reset_faults();
    }
    static const std::set<std::string> kCommands{"status", "lose-device", "hang", "wedge-on-kill",
                                                 "swap",   "hang-nvml",   "reset"};
    if (!kCommands.contains(command)) return usage();
    card.notify();
    return 0;
  }
  if (command == "xid") return inject_xid(card, words);
  if (command == "ecc" && words.size() == 3) return set_counter(card, words[1], words[2]);
  if (words.size() != 2) return usage();
  if (command == "latency") return set_number(card, state.latency_us, words[1]);
  if (command == "fail-copy") return set_number(card, state.fail_copy, words[1]);
  if (command == "recovery") return set_number(card, state.recovery_action, words[1]);
  if (command == "remap" && words[1] == "pending") return set_number(card, state.remap_pending, "1");
  if (command == "remap" && words[1] == "failed") return set_number(card, state.remap_failed, "1");
  const auto bytes = parse_size(words[1]);
  if (command != "limit" || !bytes) return usage();
  card.set_limit(*bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int device = 0;
  bool chosen = false;
  std::vector<std::string> words;
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--dir") == 0 && more) {
      ::setenv("CUDASIM_DIR", argv[++i], 1);
    } else if (std::strcmp(argv[i], "--device") == 0 && more) {
      const auto index = number(argv[++i]);
      if (!index || *index >= kMaxDevices) return usage();
      device = static_cast<int>(*index);
      chosen = true;
    } else {
      words.emplace_back(argv[i]);
    }
  }
  if (words.empty() || words[0][0] == '-') return usage();
  const std::string& dir = settings().dir;
  const bool all = words[0] == "status" && !chosen;
  int opened = 0;
  for (int i = all ? 0 : device; i < (all ? kMaxDevices : device + 1); i++) {
    const std::unique_ptr<Card> card = Card::open_existing(dir, i);
    if (card == nullptr) continue;
    opened++;
    const int result = run(*card, dir, words);
    if (result != 0) return result;
  }
  if (opened > 0) return 0;
  std::fprintf(stderr, "cudasim-ctl: no software device in %s (a program that uses one makes it)\n",
               dir.c_str());
  return 1;
}
