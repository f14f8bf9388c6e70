// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/content.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "libckpt/base/random.h"

namespace ckpt::checkpoint_store {
namespace {

Error failed() {
  return {ErrorCode::kInternal, "OpenSSL does not provide HMAC-SHA256"};
}

}  // namespace

struct ContentHasher::State {
  EVP_MAC* mac = nullptr;
  EVP_MAC_CTX* context = nullptr;
  ~State() {
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
  }
};

ContentHasher::ContentHasher(std::unique_ptr<State> state) : state_(std::move(state)) {}
ContentHasher::~ContentHasher() = default;

Result<std::unique_ptr<ContentHasher>> ContentHasher::create(const ContentKey& key) {
  auto state = std::make_unique<State>();
  state->mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  if (state->mac != nullptr) state->context = EVP_MAC_CTX_new(state->mac);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  if (state->context == nullptr ||
      EVP_MAC_init(state->context, reinterpret_cast<const unsigned char*>(key.data()), key.size(), params) !=
          1)
    return failed();
  return std::unique_ptr<ContentHasher>(new ContentHasher(std::move(state)));
}

Result<ContentId> ContentHasher::id_of(RecordKind kind, std::span<const std::byte> plain) {
  const auto domain = static_cast<unsigned char>(kind);
  std::array<unsigned char, 32> digest{};
  std::size_t length = 0;
  // No key is passed, so the MAC begins again under its current key.
  if (EVP_MAC_init(state_->context, nullptr, 0, nullptr) != 1 ||
      EVP_MAC_update(state_->context, &domain, 1) != 1 ||
      EVP_MAC_update(state_->context, reinterpret_cast<const unsigned char*>(plain.data()), plain.size()) !=
          1 ||
      EVP_MAC_final(state_->context, digest.data(), &length, digest.size()) != 1 || length != digest.size())
    return failed();
  ContentId id;
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

Result<ContentKey> make_content_key() {
  ContentKey key{};
  CKPT_TRYV(fill_random(key));
  return key;
}

std::string to_hex(const ContentId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : id.bytes) {
    text += kDigits[std::to_integer<unsigned>(b) >> 4];
    text += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

}  // namespace ckpt::checkpoint_store
