// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/card/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace cudasim {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

Settings read_settings() {
  Settings out;
  const char* dir = variable("CUDASIM_DIR");
  out.dir = dir != nullptr ? dir : "/dev/shm/cudasim-" + std::to_string(::getuid());
  char folder[PATH_MAX];
  // Makes the path absolute: the program may change its working directory between two uses of the path.
  if (out.dir[0] != '/' && ::getcwd(folder, sizeof folder) != nullptr)
    out.dir = std::string(folder) + "/" + out.dir;
  const char* name = variable("CUDASIM_NAME");
  out.name = name != nullptr ? name : "cudasim software GPU";
  const char* devices = variable("CUDASIM_DEVICES");
  out.devices = std::clamp(devices != nullptr ? std::atoi(devices) : 1, 0, kMaxDevices);
  const char* memory = variable("CUDASIM_MEMORY");
  out.memory = parse_size(memory != nullptr ? memory : "8GiB").value_or(std::uint64_t{8} << 30);
  const char* huge_pages = variable("CUDASIM_HUGE_PAGES");
  out.huge_pages = huge_pages != nullptr && std::strcmp(huge_pages, "0") != 0;
  const char* imports = variable("CUDASIM_IMPORT_AFTER_RESTORE");
  if (imports != nullptr && std::strcmp(imports, "never") == 0) out.imports = Imports::kNever;
  if (imports != nullptr && std::strcmp(imports, "same") == 0) out.imports = Imports::kSameDevice;
  return out;
}

Settings& own_settings() {
  static Settings value = read_settings();
  return value;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdULL;
  hash ^= hash >> 33;
  return hash * 0xc4ceb9fe1a85ec53ULL;
}

// Returns the index of one entry of CUDA_VISIBLE_DEVICES: a number or a UUID, which may be abbreviated to a
// prefix as in NVIDIA's driver.
int visible_entry(const std::string& entry, const Settings& machine) {
  if (entry.rfind("GPU-", 0) == 0) {
    for (int i = 0; i < machine.devices; i++) {
      if (uuid_text(device_uuid(machine.dir, i)).rfind(entry, 0) == 0) return i;
    }
    return -1;
  }
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  return !entry.empty() && *end == '\0' && index >= 0 && index < machine.devices ? static_cast<int>(index)
                                                                                 : -1;
}

}  // namespace

const Settings& settings() {
  return own_settings();
}

void change_settings(const Settings& settings) {
  own_settings() = settings;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(number >= 0) || number > 1e18) return std::nullopt;
  const std::string unit(end);
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "k" || unit == "K" || unit == "KiB") shift = 10;
  if (unit == "m" || unit == "M" || unit == "MiB") shift = 20;
  if (unit == "g" || unit == "G" || unit == "GiB") shift = 30;
  if (unit == "t" || unit == "T" || unit == "TiB") shift = 40;
  if (shift < 0) return std::nullopt;
  const double bytes = number * static_cast<double>(std::uint64_t{1} << shift);
  if (bytes > 1e18) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::vector<int> visible_devices() {
  const Settings& machine = settings();
  std::vector<int> out;
  const char* list = std::getenv("CUDASIM_VISIBLE");
  if (list == nullptr) list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < machine.devices; i++) out.push_back(i);
    return out;
  }
  std::string rest(list);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const int index = visible_entry(rest.substr(0, comma), machine);
    if (index < 0 || std::find(out.begin(), out.end(), index) != out.end()) break;
    out.push_back(index);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return out;
}

namespace {

std::string swaps_path(const std::string& dir, int index) {
  return dir + "/swaps" + std::to_string(index);
}

// Returns how often the card has been swapped: the size of a file.
std::uint64_t swaps_of(const std::string& dir, int index) {
  struct stat info {};
  return ::stat(swaps_path(dir, index).c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

}  // namespace

void swap_card(const std::string& dir, int index) {
  std::ofstream(swaps_path(dir, index), std::ios::app) << '.';
}

Uuid device_uuid(const std::string& dir, int index) {
  char resolved[PATH_MAX];
  const std::string path = ::realpath(dir.c_str(), resolved) != nullptr ? resolved : dir;
  std::uint64_t halves[2] = {0x6370757073696d30ULL, 0x67706d6967726174ULL};
  for (int i = 0; i < 2; i++) {
    for (const char c : path) halves[i] = mix(halves[i], static_cast<unsigned char>(c));
    halves[i] = mix(halves[i], static_cast<std::uint64_t>(index) + 1);
    if (const std::uint64_t swaps = swaps_of(dir, index); swaps > 0) halves[i] = mix(halves[i], swaps);
  }
  Uuid out;
  std::memcpy(out.bytes, halves, sizeof out.bytes);
  return out;
}

std::string uuid_text(const Uuid& uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; i++) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += hex;
  }
  return out;
}

}  // namespace cudasim
