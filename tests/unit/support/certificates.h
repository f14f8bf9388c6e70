// SPDX-License-Identifier: Apache-2.0
// Certificates for tests, as files of a folder that is removed with the test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/net/ca/authority.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::tls {

class Certificates {
 public:
  Certificates() : folder_(std::filesystem::temp_directory_path() / ("gm-tls-" + random_hex(8).value())) {
    std::filesystem::create_directory(folder_);
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  static Authority::Order order(Peer subject) {
    Authority::Order order;
    order.subject = std::move(subject);
    return order;
  }
  // Signs a certificate, and writes it with its key in place of the files of that name.
  CertFiles write(const std::string& name, const Authority::Order& order) {
    return write(name, authority_.sign(order).value());
  }
  CertFiles write(const std::string& name, const Issued& issued) {
    CertFiles files{folder_ / "ca.pem", folder_ / (name + ".pem"), folder_ / (name + ".key")};
    EXPECT_TRUE(write_file_durably(files.ca, authority_.pem().value().certificate));
    EXPECT_TRUE(write_file_durably(files.key, issued.key));
    EXPECT_TRUE(write_file_durably(files.certificate, issued.certificate));
    return files;
  }
  std::shared_ptr<Identity> identity(const std::string& name, Peer subject) {
    return Identity::load(write(name, order(std::move(subject)))).value();
  }
  [[nodiscard]] const Authority& authority() const { return authority_; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
  Authority authority_ = std::move(*Authority::create());
};

}  // namespace ckpt::tls
