// SPDX-License-Identifier: Apache-2.0
// A descriptor that is closed by its destructor, and the event that ends waits.
#pragma once

#include <unistd.h>

#include <atomic>
#include <utility>

namespace ncclsim {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An event that any thread sets once. Afterwards each wait that uses this event ends at once.
class Stop {
 public:
  Stop();
  void set();
  [[nodiscard]] bool is_set() const { return set_.load(); }
  // Returns a descriptor that is readable once the event is set.
  [[nodiscard]] int descriptor() const { return event_.get(); }

 private:
  std::atomic<bool> set_{false};
  Descriptor event_;
};

}  // namespace ncclsim
