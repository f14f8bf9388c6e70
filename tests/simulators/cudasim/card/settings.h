// SPDX-License-Identifier: Apache-2.0
// The settings of the software devices of this machine ("node") from the environment. They are read at first
// use.
//   CUDASIM_DIR          state folder, default /dev/shm/cudasim-UID
//   CUDASIM_DEVICES      count, default 1
//   CUDASIM_MEMORY       bytes per device with an optional unit, default 8GiB
//   CUDASIM_NAME         the devices' name
//   CUDASIM_VISIBLE      or CUDA_VISIBLE_DEVICES
//   CUDASIM_HUGE_PAGES   1: device and pinned memory in huge pages
//   CUDASIM_IMPORT_AFTER_RESTORE   never, same or always (the default)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cudasim {

// Whether a restored program may import memory: always, only if it was never restored on another device, or
// never again. A real driver may behave in any of these ways.
enum class Imports : std::uint32_t { kAlways, kSameDevice, kNever };

struct Settings {
  std::string dir;
  std::string name;
  int devices = 1;
  std::uint64_t memory = 0;
  bool huge_pages = false;
  Imports imports = Imports::kAlways;
};

inline constexpr int kMaxDevices = 64;

const Settings& settings();
// Changes the settings because the process continues on another machine (a restore there). No thread may use
// the settings meanwhile.
void change_settings(const Settings& settings);

// Parses a size such as "1536", "512MiB", "2GiB" or "4k" to bytes. Returns nothing for an invalid size.
std::optional<std::uint64_t> parse_size(const std::string& text);

// Returns the devices that a CUDA program of this process sees, in the program's order, by their index on the
// machine. As with the real driver the list ends at the first invalid entry.
std::vector<int> visible_devices();

// The device's UUID. It is equal for every process on the same state folder and different for each folder,
// until the card is swapped for another one.
struct Uuid {
  unsigned char bytes[16];
  bool operator==(const Uuid&) const = default;
};
Uuid device_uuid(const std::string& dir, int index);
void swap_card(const std::string& dir, int index);
std::string uuid_text(const Uuid& uuid);  // returns GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx

}  // namespace cudasim
