// SPDX-License-Identifier: Apache-2.0
#include "agent/health/kernel_channel.h"

#include <spdlog/spdlog.h>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr char kDefaultKernelLog[] = "/dev/kmsg";
constexpr std::size_t kMaxLineBytes = 400;

// Reads the boot id, because the numbers of log records begin again at each boot.
Result<std::string> read_boot_id() {
  CKPT_TRY(text, read_file("/proc/sys/kernel/random/boot_id", 100));
  return text.substr(0, text.find('\n'));
}

}  // namespace

Result<void> KernelChannel::start(const asio::any_io_executor& executor, FileWatch& files, std::string path) {
  if (path.empty()) return ok();
  CKPT_TRY(boot_id, read_boot_id());
  const bool by_default = path == "auto";
  if (by_default) path = kDefaultKernelLog;
  auto reader = KernelLogReader::create(executor, files, path);
  if (!reader) {
    spdlog::log(by_default ? spdlog::level::info : spdlog::level::err, "kernel log unavailable: reason {}",
                reader.error().to_string());
    return ok();
  }
  log_ = *std::move(reader);
  first_reading_ = record_.boot_id.empty();
  if (record_.boot_id != boot_id) record_.sequence = 0;
  record_.boot_id = boot_id;
  KernelLogReader::Handlers handlers;
  handlers.record = [this](const health::KernelRecord& record) { handle(record); };
  handlers.caught_up = [this] {
    first_reading_ = false;
    handlers_.changed();
  };
  log_->start(std::move(handlers));
  return ok();
}

void KernelChannel::stop() {
  if (log_) log_->stop();
}

void KernelChannel::handle(const health::KernelRecord& record) {
  const bool known = record.sequence <= record_.sequence && record_.sequence != 0;
  if (known) return;
  record_.sequence = record.sequence;
  if (record.facility != 0 || first_reading_) return;
  for (const health::LogEvent& event : parser_.parse(record.text)) handle_event(event, record.text);
}

void KernelChannel::handle_event(const health::LogEvent& event, const std::string& text) {
  if (const auto* identity = std::get_if<health::IdentityLine>(&event)) {
    if (gpus_.identify(identity->gpu, identity->uuid)) handlers_.changed();
    return;
  }
  const auto* xid = std::get_if<health::XidLine>(&event);
  const health::PciAddress address = xid != nullptr ? xid->gpu : std::get<health::LostLine>(event).gpu;
  const KnownGpu* gpu = gpus_.at(address);
  if (gpu == nullptr) {
    spdlog::info("kernel log: gpu {} is not a GPU of this node", address.to_string());
    return;
  }
  SeenEvent seen;
  seen.gpu = gpu->uuid;
  seen.source = "kernel-log";
  if (xid != nullptr) {
    seen.xid = xid->xid;
    seen.pid = xid->pid;
    seen.line = text.substr(0, kMaxLineBytes);
  } else {
    seen.lost = true;
  }
  handlers_.saw(std::move(seen));
}

}  // namespace ckpt::agent
