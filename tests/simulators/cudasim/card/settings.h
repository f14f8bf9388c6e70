// SPDX-License-Identifier: Apache-2.0
// The environment's settings of the software devices of this machine ("node"). Read at first use.
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

// Whether a program that has been restored may import memory: always, not once it was restored on another
// device, or never again. A real driver may be like any of them.
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
// The process goes on on another machine (a restore there). No thread may be using the settings meanwhile.
void change_settings(const Settings& settings);

// "1536", "512MiB", "2GiB", "4k": bytes, or nothing if it is not a size.
std::optional<std::uint64_t> parse_size(const std::string& text);

// The devices that a CUDA program of this process sees, by their index on the machine, in its order. As with
// the real driver the list ends at the first entry that names no device.
std::vector<int> visible_devices();

// The same for every process on the same state folder, different for each folder, until the card is swapped
// for another one.
struct Uuid {
  unsigned char bytes[16];
  bool operator==(const Uuid&) const = default;
};
Uuid device_uuid(const std::string& dir, int index);
void swap_card(const std::string& dir, int index);
std::string uuid_text(const Uuid& uuid);  // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx

}  // namespace cudasim
