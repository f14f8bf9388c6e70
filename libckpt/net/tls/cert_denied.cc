// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/tls/cert_denied.h"

#include <openssl/bn.h>
#include <openssl/crypto.h>

#include <ctime>

#include "libckpt/base/handle.h"

namespace ckpt::tls {
namespace {

struct NumberTraits {
  using Value = BIGNUM*;
  static constexpr Value kNull = nullptr;
  static void close(Value number) noexcept { BN_free(number); }
};

Error no_serial(std::string_view text) {
  constexpr std::size_t kShown = 80;
  return {ErrorCode::kInvalidArgument,
          "\"" + std::string(text.substr(0, kShown)) + "\" is not a serial number in hexadecimal digits"};
}

}  // namespace

Result<std::string> serial_of_text(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with("0x") || rest.starts_with("0X")) rest.remove_prefix(2);
  std::string serial;
  bool any = false;
  for (const char c : rest) {
    if (c == ':') continue;
    const bool is_large = c >= 'A' && c <= 'F';
    if (!is_large && (c < '0' || c > '9') && (c < 'a' || c > 'f')) return no_serial(text);
    any = true;
    if (c == '0' && serial.empty()) continue;
    serial += is_large ? static_cast<char>(c - 'A' + 'a') : c;
    if (serial.size() > kMaxSerialDigits) return no_serial(text);
  }
  if (!any) return no_serial(text);
  return serial.empty() ? "0" : serial;
}

std::string serial_of(const X509* certificate) {
  const UniqueHandle<NumberTraits> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  char* digits = number ? BN_bn2hex(number.get()) : nullptr;
  if (digits == nullptr) return {};
  const std::string text = digits;
  OPENSSL_free(digits);
  auto serial = serial_of_text(text);
  return serial ? *std::move(serial) : std::string();
}

std::int64_t end_of(const X509* certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return 0;
  return ::timegm(&end);
}

Result<void> DeniedSerials::replace(const std::vector<std::string>& serials) {
  if (serials.size() > kMax)
    return Error(ErrorCode::kRefused, std::to_string(serials.size()) +
                                          " certificates are denied, but at most " + std::to_string(kMax) +
                                          " can be");
  std::set<std::string> all;
  for (const std::string& text : serials) {
    CKPT_TRY(serial, serial_of_text(text));
    all.insert(std::move(serial));
  }
  serials_ = std::move(all);
  return ok();
}

}  // namespace ckpt::tls
