// SPDX-License-Identifier: Apache-2.0
// Reports to an agent about its GPUs' health: {which u8, bytes}. A report is a packet of gpumigrate-health,
// which loads the driver, or the record that the agent finds after a restart, under a correct checksum.
// Accepted values are in range and are the same when written again.
#include "agent/gpus/gpu_identity.h"
#include "agent/health/health_record.h"
#include "agent/health_helper/messages.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

void check_report(Bytes packet) {
  using namespace agent::nvml_watch;
  const auto parsed = parse_report(packet);
  if (!parsed) return;
  const Report& report = *parsed;
  FUZZ_CHECK(report.gpu < kMaxGpus);
  const auto once = wire::encode(report);
  FUZZ_CHECK(once.size() <= packet.size() && report.text.size() <= kMaxText);
  const auto reread = parse_report(once);
  FUZZ_CHECK(reread.has_value() && wire::encode(*reread) == once);
  const GpuName name = gpu_name(report);
  FUZZ_CHECK(name.uuid.size() + name.bus_id.size() + name.model.size() <= report.text.size());
  const auto identity = agent::gpu_identity(name.uuid, name.bus_id);
  if (!identity) return;
  const auto again = agent::parse_gpu_uuid(agent::to_text(identity->uuid));
  FUZZ_CHECK(again.has_value() && *again == identity->uuid);
}

void check_record(Bytes body) {
  std::vector<std::byte> file(body.begin(), body.end());
  const std::uint32_t crc = wire::crc32(body);
  for (unsigned shift = 0; shift < 32; shift += 8)
    file.push_back(static_cast<std::byte>(crc >> shift & 0xff));
  const auto record = agent::decode_health(file);
  if (!record) return;
  const auto once = agent::encode_health(*record);
  const auto again = agent::decode_health(once);
  FUZZ_CHECK(again.has_value() && agent::encode_health(*again) == once);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const bool report = input.number<std::uint8_t>() % 2 == 0;
  report ? fuzz::check_report(input.rest()) : fuzz::check_record(input.rest());
  (void)agent::decode_health(std::as_bytes(std::span(data, size)));  // the bytes as they are stored on the
                                                                     // disk
  return 0;
}
