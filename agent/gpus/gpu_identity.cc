// SPDX-License-Identifier: Apache-2.0
#include "agent/gpus/gpu_identity.h"

#include <fmt/format.h>

#include <charconv>

namespace ckpt::agent {
namespace {

constexpr std::string_view kPrefix = "GPU-";

bool is_dash(std::size_t at) {
  return at == 8 || at == 13 || at == 18 || at == 23;
}

// Removes the hexadecimal number and the character `end` from the front of `text`, and returns the number.
// The number must end at `end`.
Result<std::uint32_t> parse_hex(std::string_view& text, char end) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const auto length = static_cast<std::size_t>(stop - text.data());
  if (error != std::errc{} || length >= text.size() || text[length] != end)
    return Error(ErrorCode::kInvalidArgument, "Not a PCI address");
  text.remove_prefix(length + 1);
  return value;
}

}  // namespace

Result<GpuUuid> parse_gpu_uuid(std::string_view text) {
  const Error error(ErrorCode::kInvalidArgument, "\"" + std::string(text) + "\" is not the UUID of a GPU");
  if (!text.starts_with(kPrefix)) return error;
  const std::string_view digits = text.substr(kPrefix.size());
  if (digits.size() != 36) return error;
  GpuUuid uuid{};
  std::size_t byte = 0;
  for (std::size_t at = 0; at < digits.size();) {
    if (is_dash(at)) {
      if (digits[at++] != '-') return error;
      continue;
    }
    const auto [stop, failure] =
        std::from_chars(digits.data() + at, digits.data() + at + 2, uuid[byte++], 16);
    if (failure != std::errc{} || stop != digits.data() + at + 2) return error;
    at += 2;
  }
  return uuid;
}

std::string to_text(const GpuUuid& uuid) {
  std::string text(kPrefix);
  for (const std::uint8_t byte : uuid) {
    if (is_dash(text.size() - kPrefix.size())) text += '-';
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

Result<local::GpuIdentity> gpu_identity(std::string_view uuid, std::string_view bus_id) {
  local::GpuIdentity identity;
  CKPT_TRY(bytes, parse_gpu_uuid(uuid));
  identity.uuid = bytes;
  CKPT_TRY(domain, parse_hex(bus_id, ':'));
  CKPT_TRY(bus, parse_hex(bus_id, ':'));
  CKPT_TRY(device, parse_hex(bus_id, '.'));
  identity.pci_domain = domain;
  identity.pci_bus = bus;
  identity.pci_device = device;
  return identity;
}

}  // namespace ckpt::agent
