// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/authority_folder.h"

#include <sys/stat.h>

#include <filesystem>

#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::tls {
namespace {

constexpr unsigned kPublic = 0644;

Result<void> make_folder(const std::string& path) {
  std::error_code code;
  const bool is_new = std::filesystem::create_directories(path, code);
  if (code) return Error(ErrorCode::kIo, "Cannot create the folder " + path + ": " + code.message());
  if (is_new && ::chmod(path.c_str(), 0700) != 0)
    return Error::from_errno("Cannot restrict access to the folder " + path);
  return ok();
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

Result<bool> obtain_authority(const std::string& folder) {
  CKPT_TRYV(make_folder(folder));
  if (exists(folder + "/ca.pem") || exists(folder + "/ca.key")) return false;
  CKPT_TRY(authority, Authority::create());
  CKPT_TRY(pem, authority.pem());
  CKPT_TRYV(write_pair(folder, "ca", pem));
  return true;
}

Result<void> write_pair(const std::string& folder, const std::string& name, const Issued& issued) {
  const std::string file = folder + "/" + name;
  return replace_pair(file + ".pem", issued.certificate, file + ".key", issued.key);
}

Result<void> issue(const std::string& authority_folder, const Authority::Order& order, const std::string& out,
                   const std::string& name) {
  CKPT_TRY(authority, Authority::read(authority_folder));
  CKPT_TRY(issued, authority.sign(order));
  CKPT_TRY(believed, read_file(authority_folder + "/ca.pem", kMaxPemBytes));
  CKPT_TRYV(make_folder(out));
  if (out != authority_folder) {
    CKPT_TRYV(write_file_durably(out + "/ca.pem", believed, kPublic));
  }
  return write_pair(out, name, issued);
}

}  // namespace ckpt::tls
