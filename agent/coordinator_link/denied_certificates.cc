// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/denied_certificates.h"

#include <spdlog/spdlog.h>

#include <sstream>

#include "libckpt/base/fd.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxFileBytes = tls::DeniedSerials::kMax * (tls::kMaxSerialDigits + 1);
constexpr unsigned kPrivate = 0600;

}  // namespace

Result<void> DeniedCertificates::load(const std::string& file, tls::DeniedSerials& denied) {
  const auto text = read_file(file, kMaxFileBytes);
  if (!text && text.error().code() == ErrorCode::kNotFound) return ok();
  if (!text) return text.error();
  std::istringstream lines(*text);
  std::vector<std::string> serials;
  for (std::string serial; std::getline(lines, serial);) serials.push_back(serial);
  auto replaced = denied.replace(serials);
  if (replaced) return ok();
  return Error(ErrorCode::kCorrupt, file +
                                        " is not a list of denied certificates: remove this file, and the "
                                        "coordinator sends the list again")
      .caused_by(replaced.error());
}

DeniedCertificates::DeniedCertificates(CoordinatorLink& link, std::shared_ptr<tls::DeniedSerials> denied,
                                       std::string file, control::asio::thread_pool& pool,
                                       control::asio::any_io_executor executor, std::function<void()> changed)
    : denied_(std::move(denied)),
      file_(std::move(file)),
      pool_(pool),
      executor_(std::move(executor)),
      changed_(std::move(changed)) {
  const auto handle_frame = [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(list, wire::decode<wire::DenyCertificates>(body));
    auto before = denied_->all();
    CKPT_TRYV(denied_->replace(list.serials));
    if (denied_->all() == before) return ok();
    spdlog::info("certificates denied: count {}", denied_->all().size());
    written_ = false;
    if (!writing_) control::spawn(executor_, "write denied certificates", write());
    changed_();
    return ok();
  };
  link.subscribe(wire::FrameType::kDenyCertificates, handle_frame);
}

control::Task<> DeniedCertificates::write() {
  writing_ = true;
  while (!written_) {
    written_ = true;
    std::string text;
    for (const std::string& serial : denied_->all()) text += serial + "\n";
    const auto write = [text, file = file_] { return write_file_durably(file, text, kPrivate); };
    const auto done = co_await control::offload(pool_, write);
    if (!done) spdlog::error("denied certificates not saved: reason {}", done.error().to_string());
  }
  writing_ = false;
}

}  // namespace ckpt::agent
